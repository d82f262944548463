"""Gradient tracking: gossip in which each worker estimates what the others would do."""

import torch
from torch import Tensor

from .gossiping import Gossiping


class GradientTracking(Gossiping):
    """x⁺ = W(x + u + c), c ← W(c + u) − u (Lorenzo and Scutari 2016; Nedić et al. 2017).

    The corrections c add up to 0, and u + c tends to the mean of all workers' u. Two vectors a neighbour and step.
    Arguments as in `Gossiping`.
    """

    def connect(self) -> None:
        """Build the gossip; nothing to correct yet."""
        super().connect()
        self.correction = torch.zeros_like(self.x)

    @property
    def bytes_up(self) -> int:
        """Bytes of a message to a neighbour."""
        return 2 * self.x.nbytes

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x⁺ = W(x + u + c), c ← W(c + u) − u, in one message."""
        tracked = u + self.correction
        both = torch.cat([x + tracked, tracked])
        self.gossip(both)
        x.copy_(both[: len(x)])
        torch.sub(both[len(x) :], u, out=self.correction)
        self.count = self.gossip.count

    def carried(self) -> dict[str, Tensor]:
        """The correction."""
        return {"correction": self.correction}

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up the correction."""
        self.correction = vectors["correction"].clone()
