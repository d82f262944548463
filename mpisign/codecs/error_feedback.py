"""Error feedback round any codec: what it loses is kept, and sent later."""

import torch
from torch import Tensor

from .base import Codec


class ErrorFeedback(Codec):
    """Encodes p = v + e, and keeps e ← p − decode(encode(p)) (Seide et al. 2014; Karimireddy et al. 2019).

    At any time the sum of what was decoded and e is the sum of what was put in: exactly, but for the rounding of v + e to
    float32. e is in the vectors' units (of gradients: a new learning rate rescales what is owed).

    Args:
        codec: what is made up for.

    Attributes:
        residual: float32[numel], e; changed in place by `encode`.
    """

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec.numel, codec.words)
        self.codec = codec
        self.residual = torch.zeros(codec.numel)

    def accepts(self, vector: Tensor) -> bool:
        """Tell whether what would be sent is accepted; asking changes nothing."""
        return self.codec.accepts(vector + self.residual)

    def encode(self, vector: Tensor, key: int, present: Tensor | None = None) -> Tensor:
        """Return the message, and change the residual.

        Args:
            vector: float32[numel].
            key: names the codec's coins.
            present: bool[numel], the coordinates that count this time; the others are sent as 0, and keep what they owe.
        """
        moved = vector + self.residual
        if present is not None:
            moved.mul_(present)
        message = self.codec.encode(moved, key)
        moved.sub_(self.codec.decode(message))
        self.residual.copy_(moved if present is None else torch.where(present, moved, self.residual))
        return message

    def decode(self, message: Tensor) -> Tensor:
        """As the codec does."""
        return self.codec.decode(message)
