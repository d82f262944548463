"""A model with parameters of all kinds, and gradients for it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def odd_model(seed: int = 0) -> dict[str, nn.Parameter]:
    """Parameters of all shapes that a model may have: empty, 0-dim, single, word-sized, strided, frozen, half precision."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    parameters = {
        "empty": draw(0),
        "scalar": draw(),
        "single": draw(1),
        "word": draw(64),
        "matrix": draw(13, 5),
        "transposed": draw(7, 9).t(),
        "strided": draw(6, 8)[:, ::2],
        "channels_last": draw(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "double": draw(10).double(),
        "half": draw(70).half(),
        "bfloat16": draw(70).bfloat16(),
    }
    model = {name: nn.Parameter(tensor) for name, tensor in parameters.items()}
    model["frozen"] = nn.Parameter(draw(65), requires_grad=False)
    return model


def give_gradients(model: dict[str, nn.Parameter], rank: int, step: int, without: Sequence[str] = ()) -> None:
    """Give each trainable parameter, but those named in `without`, a gradient of this rank's and step's own."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    for name, p in model.items():
        if p.requires_grad:
            noise = torch.randn(p.shape, generator=random, dtype=torch.float32)
            p.grad = None if name in without else (p.detach().float() + noise).to(p.dtype)
