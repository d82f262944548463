"""Signs, and one number for all of them."""

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .base import Codec


class ScaledSign(Codec):
    """C(v) = mean|v| · sign(v): one bit a coordinate and a scale (Seide et al. 2014; Bernstein et al. 2018; EF-signSGD).

    The scale is the best for these signs: ‖v − C(v)‖² = ‖v‖² − ‖v‖₁²/d. **Error feedback is always on**: without it, it
    doesn't converge (Karimireddy et al. 2019). A zero is sent as plus, a zero vector as zeros.

    Wire: the scale as float32 in a word of its own, then the bits, 1 for a negative coordinate, lowest first.

    Args:
        numel: length of the vectors.
    """

    feedback = True

    def __init__(self, numel: int) -> None:
        super().__init__(numel, 1 + -(-numel // 64))
        self._layout = kernels.Layout([numel])

    @property
    def repeats(self) -> bool:
        """What has come back has the same signs, and the mean of equal magnitudes is exact in float64."""
        return True

    def _scale(self, vector: Tensor) -> np.float32:
        with np.errstate(over="ignore"):
            return np.float32(kernels.l1_norms(self._layout, [vector])[0] / max(self.numel, 1))

    def accepts(self, vector: Tensor) -> bool:
        """Tell whether the scale, which is no larger than the largest coordinate, is finite."""
        return bool(np.isfinite(self._scale(vector)))

    def encode(self, vector: Tensor, key: int) -> Tensor:
        """Write the scale and the signs."""
        words, bits = np.zeros(self.words, np.uint64), np.zeros(64 * (self.words - 1), np.bool_)
        scale = self._scale(vector)
        bits[: self.numel] = (vector.numpy() < 0) & (scale > 0)
        words[0] = scale.view(np.uint32)
        words[1:] = np.packbits(bits, bitorder="little").view(np.uint64)
        return torch.from_numpy(words)

    def decode(self, message: Tensor) -> Tensor:
        """Plus or minus the scale."""
        words = message.numpy()
        scale = words[:1].astype(np.uint32).view(np.float32)[0]
        negative = np.unpackbits(words[1:].view(np.uint8), bitorder="little", count=self.numel).view(np.bool_)
        return torch.from_numpy(np.where(negative, -scale, scale))
