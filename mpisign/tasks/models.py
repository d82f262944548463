"""The models of the papers, as functions (shape of one input, number of classes) -> module.

Weights come from torch's global CPU generator: `seeding.torch_seeded` round the call makes them repeatable.
"""

import math

from torch import nn

from ..errors import ConfigError

VGG11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with one hidden layer of 100: float32 `[n, *shape]` -> `[n, classes]`.

    79,510 parameters for MNIST, the network inferred from the figures of Safaryan and Richtárik (2021).
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 100), nn.ReLU(), nn.Linear(100, classes))


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return one convolution, 8 of 5x5 with stride 3, and a layer: float32 `[n, *shape]` -> `[n, classes]`.

    5,338 parameters for 1x28x28 and 10 classes: for many simulated workers on few cores. `shape` is channels x height x
    width, from 5x5 pixels on; raises ConfigError for anything else.
    """
    channels, height, width = _image("small_cnn", shape, smallest=5)
    rows, columns = ((side - 5) // 3 + 1 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * rows * columns, classes)
    )


def lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return LeNet-5 with ReLU and max pooling: float32 `[n, *shape]` -> `[n, classes]`.

    61,706 parameters for 1x28x28, 62,006 for 3x32x32. `shape` is channels x height x width, from 12x12 pixels on; sides
    under 32 are padded by 2, as MNIST was for LeNet-5. Raises ConfigError for anything else. Source: LeCun, Bottou,
    Bengio, Haffner (1998), section II.
    """
    channels, height, width = _image("lenet", shape, smallest=12)
    padding = 2 if min(height, width) < 32 else 0
    rows, columns = (((side + 2 * padding - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def vgg11(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return VGG-11 without batch normalisation, with a head of 512-512-classes: `[n, *shape]` -> `[n, classes]`.

    9,750,922 parameters for 3x32x32 and 10 classes. Convolutions start as N(0, √(2/(k²·out))) with bias 0; two dropouts
    of 0.5 draw from the device's global generator while training. `shape` is channels x height x width, from 32x32
    pixels on; raises ConfigError for anything else. Source: Simonyan and Zisserman (2015), configuration A, as trained
    by Vogels et al. (2021).
    """
    channels, height, width = _image("vgg11", shape, smallest=32)
    return nn.Sequential(
        *_convolutions(channels),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(512 * (height // 32) * (width // 32), 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def _convolutions(channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for entry in VGG11:
        if isinstance(entry, int):
            layers += [_convolution(channels, entry), nn.ReLU()]
            channels = entry
        else:
            layers.append(nn.MaxPool2d(2))
    return layers


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (9 * outputs)))
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def _image(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Channels, height and width, or ConfigError."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ConfigError(
            f"--model {model}: inputs are {'x'.join(map(str, shape))}, wanted channels x height x width of at least "
            f"{smallest}x{smallest} pixels; --model mlp takes any shape"
        )
    channels, height, width = shape
    return channels, height, width
