"""QSGD: a norm, and a whole number from −s to s for each coordinate."""

import functools
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .base import Codec

Norm = Literal["l2", "max"]

LARGEST = 32767
"""The most levels: a coordinate then takes 16 bits, as much as a half float."""

_NORM_BITS = 32


class QSGD(Codec):
    """Stochastic quantisation to s levels (Alistarh, Grubic, Li, Tomioka, Vojnović 2017, "QSGD").

        Q(v)_i = N·sign(v_i)·ξ_i,  ξ_i = ⌊a⌋/s or (⌊a⌋ + 1)/s, the latter with probability a − ⌊a⌋, a = s·|v_i|/N

    so that E[Q(v)] = v; N is ‖v‖₂ or max|v_i|. s = 1 is the ternary variant. With "max" the largest coordinate always
    arrives as it is (a known implementation drops it, and so is biased).

    Wire: N as float32 in the lowest 32 bits, then groups of digits s + sign·level in base 2s+1, as many together as waste
    least of their bits: within 2 % of log2(2s+1) bits a coordinate. The stream is rounded up to whole words.

    a is rounded to a multiple of 2^−k, with s·2^k the largest such number up to 2²³: an error of Q's mean of at most
    N·2⁻²³, below that of N itself as a float32. The coins are numbered by coordinate (`kernels.quantise`): no bit depends
    on threads, order or device.

    Args:
        numel: length of the vectors.
        levels: s, from 1 to 32767.
        norm: "l2", the paper's, or "max", whose noise is smaller and zeros are fewer.

    Raises:
        ValueError: levels or norm out of range.
    """

    unbiased = True

    def __init__(self, numel: int, levels: int, norm: Norm = "l2") -> None:
        if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= LARGEST:
            raise ValueError(f"levels must be a whole number from 1 to {LARGEST}, got {levels!r}")
        if norm not in get_args(Norm):
            raise ValueError(f"norm must be l2 or max, got {norm!r}")
        self.levels, self.norm = levels, norm
        self.together, self.bits = grouping(2 * levels + 1)
        self._shift = 23 - (levels - 1).bit_length()
        last = ((2 * levels + 1) ** (numel % self.together) - 1).bit_length()
        stream = _NORM_BITS + numel // self.together * self.bits + last
        super().__init__(numel, -(-stream // 64))
        self._layout = kernels.Layout([numel])

    @property
    def repeats(self) -> bool:
        """What has come back has the same largest coordinate, but a different l2 norm."""
        return self.norm == "max"

    def accepts(self, vector: Tensor) -> bool:
        """Tell whether the norm is finite in float32: a sum of squares may be too large where no coordinate is."""
        return bool(np.isfinite(self._size(vector)))

    def _size(self, vector: Tensor) -> np.float32:
        if self.norm == "l2":
            return np.float32(kernels.l2_norm(self._layout, [vector]))
        return np.float32(vector.abs().max().item() if self.numel else 0.0)

    def encode(self, vector: Tensor, key: int) -> Tensor:
        """Draw a level for each coordinate, and pack."""
        from ..kernels import quantise

        size, digits = self._size(vector), np.empty(self.numel, np.uint16)
        quantise.quantise(vector.numpy(), size, self.levels, self._shift, key, digits)
        words = np.zeros(self.words, np.uint64)
        words[:1] = size.view(np.uint32)
        quantise.pack(digits, 2 * self.levels + 1, self.together, self.bits, _NORM_BITS, words)
        return torch.from_numpy(words)

    def decode(self, message: Tensor) -> Tensor:
        """N·level/s, rounded once."""
        from ..kernels import quantise

        words, vector = message.numpy(), np.empty(self.numel, np.float32)
        size = words[:1].view(np.float32)[0]
        levels = np.arange(-self.levels, self.levels + 1, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            values = (np.float64(size) * levels / self.levels).astype(np.float32)
        quantise.unpack(words, values, self.together, self.bits, _NORM_BITS, vector)
        return torch.from_numpy(vector)


@functools.cache
def grouping(base: int) -> tuple[int, int]:
    """Return how many digits to write as one number, and in how many bits, at most 63: the fewest bits a digit.

    >>> grouping(3), grouping(9), grouping(255)
    ((29, 46), (17, 54), (1, 8))
    """
    counts = range(1, 64 // (base - 1).bit_length() * 2)
    fitting = [(count, (base**count - 1).bit_length()) for count in counts if base**count <= 2**63]
    return min(fitting, key=lambda group: (group[1] / group[0], group[0]))
