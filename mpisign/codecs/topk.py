"""The largest coordinates only."""

import math
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from .base import Codec


class TopK(Codec):
    """Sends the share of coordinates that are largest in magnitude, each as 32 bits of index and a float32.

    **Error feedback is always on**: without it, what is never among the largest would never be sent (Stich, Cordonnier,
    Jaggi 2018). Equal magnitudes: the lower index goes first, so that the choice depends on nothing but the vector.

    Args:
        numel: length of the vectors, below 2^32.
        share: in (0, 1]; ceil(share·numel) coordinates are sent, so 0.01 takes 0.64 bits a coordinate.

    Raises:
        ValueError: share or numel out of range.
    """

    feedback = True

    def __init__(self, numel: int, share: float) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share must be a number above 0 and at most 1, got {share!r}")
        if numel >= 2**32:
            raise ValueError(f"top-k numbers coordinates with 32 bits, got a vector of {numel}")
        super().__init__(numel, math.ceil(Fraction(repr(share)) * numel))  # as it was typed: 0.07·100 is above 7

    @property
    def repeats(self) -> bool:
        """What has come back holds the same largest coordinates."""
        return True

    def encode(self, vector: Tensor, key: int) -> Tensor:
        """Write value and index into each word, in the order of indices."""
        values = vector.numpy()
        indices = _largest(np.abs(values), self.words).astype(np.uint64)
        bits = np.ascontiguousarray(values[indices]).view(np.uint32).astype(np.uint64)
        return torch.from_numpy(bits << np.uint64(32) | indices)

    def decode(self, message: Tensor) -> Tensor:
        """Zeros, and what was sent."""
        words, vector = message.numpy(), np.zeros(self.numel, np.float32)
        vector[words & np.uint64(0xFFFFFFFF)] = (words >> np.uint64(32)).astype(np.uint32).view(np.float32)
        return torch.from_numpy(vector)


def _largest(magnitudes: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest, in ascending order; of equal ones the first."""
    if count == 0:
        return np.empty(0, np.int64)
    threshold = np.partition(magnitudes, -count)[-count]
    above = np.flatnonzero(magnitudes > threshold)
    equal = np.flatnonzero(magnitudes == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))
