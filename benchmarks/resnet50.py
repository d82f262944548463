"""The shapes of ResNet-50's parameters, without torchvision: what the benchmarks take for a model of middling size."""

NUMEL = 25_557_032
"""Parameters of ResNet-50 with 1000 classes, in 161 tensors."""

_BLOCKS = (3, 4, 6, 3)
_WIDTH, _CLASSES, _EXPANSION = 64, 1000, 4

Shape = tuple[int, ...]


def shapes(numel: int = NUMEL) -> list[Shape]:
    """Return the 161 shapes, in order; for fewer coordinates the network is thinned, to no more than `numel` if it can be."""
    width = _WIDTH
    while width > 1 and sum(map(size, _shapes(width))) > numel:
        width -= 1
    return _shapes(width)


def size(shape: Shape) -> int:
    """Return the number of coordinates of a shape."""
    product = 1
    for side in shape:
        product *= side
    return product


def _shapes(width: int) -> list[Shape]:
    """He, Zhang, Ren, Sun (2016), table 1, with `width` channels after the first layer."""
    found = _convolution(3, width, 7)
    channels = width
    for stage, blocks in enumerate(_BLOCKS):
        inner = width << stage
        for block in range(blocks):
            outputs = inner * _EXPANSION
            found += _convolution(channels, inner, 1) + _convolution(inner, inner, 3) + _convolution(inner, outputs, 1)
            if block == 0:
                found += _convolution(channels, outputs, 1)  # of the shortcut
            channels = outputs
    classes = max(1, _CLASSES * width // _WIDTH)
    return [*found, (classes, channels), (classes,)]


def _convolution(inputs: int, outputs: int, kernel: int) -> list[Shape]:
    """A convolution without bias, and its BatchNorm's weight and bias."""
    return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]
