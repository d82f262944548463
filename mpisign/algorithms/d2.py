"""D² and exact diffusion: gossip that corrects for what makes workers differ."""

import warnings

import torch
from torch import Tensor

from ..topology.weights import Matrix, lazy, smallest_eigenvalue
from .gossiping import Gossiping


class D2(Gossiping):
    """x⁺ = W(x + u + c), then c ← x⁺ − x − u: D² (Tang et al. 2018), which is x⁺ = W(2x − x⁻ + u − u⁻).

    Heterogeneity doesn't stop it, but it converges only where λ_min(W) > −1/3: with a smaller one a RuntimeWarning says
    so. A ring of even size has exactly −1/3 with the default weights; a weight of 0.32 gives it room. Arguments as in
    `Gossiping`.
    """

    def matrix(self) -> Matrix:
        """Return W; warn where D² need not converge with it."""
        w = super().matrix()
        least = smallest_eigenvalue((w + w.T) / 2)
        if least < -1 / 3 - 1e-9 and self.comm.rank == 0:
            warnings.warn(
                f"D² may diverge with these weights: their smallest eigenvalue is {least:.4f}, below −1/3; take exact diffusion",
                RuntimeWarning,
                stacklevel=2,
            )
        return w

    def connect(self) -> None:
        """Build the gossip; nothing to correct yet."""
        super().connect()
        self.correction = torch.zeros_like(self.x)

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x⁺ = W(x + u + c), c ← x⁺ − x − u."""
        u += x
        torch.add(u, self.correction, out=x)
        self.gossip(x)
        torch.sub(x, u, out=self.correction)
        self.count = self.gossip.count

    def carried(self) -> dict[str, Tensor]:
        """The correction."""
        return {"correction": self.correction}

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up the correction."""
        self.correction = vectors["correction"].clone()


class ExactDiffusion(D2):
    """D² with (W + I)/2 in place of W, which converges on every graph (Yuan et al. 2019). Arguments as in `Gossiping`."""

    def matrix(self) -> Matrix:
        """Return (W + I)/2."""
        return lazy(Gossiping.matrix(self))
