"""Floats as they are, or rounded to half of their bits."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .base import Codec


class Float32(Codec):
    """As it is: 32 bits a coordinate, nothing lost."""

    unbiased = True
    both_ways = True
    dtype: ClassVar[torch.dtype] = torch.float32

    def __init__(self, numel: int) -> None:
        super().__init__(numel, -(-numel * self.dtype.itemsize // 8))

    @property
    def repeats(self) -> bool:
        """A rounded float is rounded to itself."""
        return True

    def accepts(self, vector: Tensor) -> bool:
        """Tell whether all is finite, also after rounding: what is too large for the type makes a worker abstain."""
        return bool(vector.to(self.dtype).isfinite().all())

    def encode(self, vector: Tensor, key: int) -> Tensor:
        """Round to nearest, half to even, and put 64 bits' worth into each word, lowest first; the rest is 0."""
        padded = np.zeros(8 * self.words, np.uint8)
        if self.numel:  # an empty tensor may have strides that no view takes
            padded[: self.numel * self.dtype.itemsize] = vector.to(self.dtype).view(torch.uint8).numpy()
        return torch.from_numpy(padded.view(np.uint64))

    def decode(self, message: Tensor) -> Tensor:
        """Return the floats, in memory of their own."""
        return message.clone().view(torch.uint8)[: self.numel * self.dtype.itemsize].view(self.dtype).float()


class Float16(Float32):
    """Half precision, 16 bits a coordinate: 11 bits of precision from 6e-5 to 65504, both ways.

    A coordinate of 65520 or more would become infinite: the worker then abstains, as with a gradient that isn't finite,
    and it is counted. Below 6e-8 there is only 0, and nothing makes up for it: use bfloat16 where gradients are small.
    """

    unbiased = False
    dtype = torch.float16


class BFloat16(Float32):
    """The upper half of a float32, 16 bits a coordinate: 8 bits of precision over float32's whole range, both ways."""

    unbiased = False
    dtype = torch.bfloat16
