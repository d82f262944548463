"""Byzantine workers who know what the honest ones say in this very step, and collude: beyond what the papers' theory covers.

Nobody's bytes are counted for it: they listen, the algorithm sends no more. Two forms: `GradientAttack` hears the honest
gradients, so that every algorithm meets it; `BallotAttack` hears the honest ballots, between packing and the vote.
"""

import abc
from collections.abc import Sequence
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .attacks import Attack, Gradients, Overheard

Signs = npt.NDArray[np.int8]


class GradientAttack(Attack):
    """Says what follows from the honest workers' gradients, parameter by parameter; a subclass writes `lie`."""

    overhears: ClassVar[Overheard] = "gradients"

    def __init__(self, rank: int, ranks: Sequence[int], size: int, seed: int = 0) -> None:
        super().__init__(rank, ranks, size, seed)
        self._honest: Sequence[Gradients] = ()

    def hear(self, honest: Sequence[Gradients]) -> None:
        """Learn the honest workers' gradients of this step, rank by rank; before each call. They stay as they are."""
        self._honest = honest

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return the lie on each parameter of which an honest worker has a finite gradient, else None."""
        heard = [
            [g for g in said if g is not None and bool(g.isfinite().all())] for said in zip(*self._honest, strict=True)
        ]
        return [self.lie(said) if said else None for said in heard or [[]] * len(gradients)]

    @abc.abstractmethod
    def lie(self, honest: list[Tensor]) -> Tensor:
        """Return what is said instead of one parameter's gradient, given those of the honest workers that have one."""


class ALIE(GradientAttack):
    """Says mean − z·std of the honest gradients: a little is enough (Baruch, Baruch, Goldberg 2019).

    Mean and std are taken coordinate by coordinate, over workers. z is the largest that hides among the honest: so many
    of them are expected farther out that with the liars they are a majority (`hidden_deviations`).
    """

    def lie(self, honest: list[Tensor]) -> Tensor:
        """Return mean − z·std, in float64, rounded once."""
        mean = _mean(honest)
        std = _mean([(gradient.double() - mean).square() for gradient in honest]).sqrt()
        return (mean - hidden_deviations(self.size, len(self.ranks)) * std).to(honest[0].dtype)


class InnerProduct(GradientAttack):
    """Says −ε·mean of the honest gradients, so that the inner product with the truth is negative (Xie et al. 2020).

    Attributes:
        epsilon: ε > 0. A mean of n, f of them liars, turns round for ε > (n − f)/f; a vote sees the sign alone.
    """

    epsilon: ClassVar[float] = 1.0

    def lie(self, honest: list[Tensor]) -> Tensor:
        """Return −ε·mean, in float64, rounded once."""
        return (-self.epsilon * _mean(honest)).to(honest[0].dtype)


class BallotAttack(Attack):
    """Replaces its ballot when it knows all honest ones; a subclass writes `votes`. For algorithms with a vote alone."""

    overhears: ClassVar[Overheard] = "ballots"

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return the gradients themselves: the lie comes later."""
        return list(gradients)

    @abc.abstractmethod
    def votes(self, honest: Signs, step: int) -> Signs:
        """Return this worker's vote on each coordinate of one parameter.

        int8[h, d] in −1, 0, 1 (0 abstains), the honest ballots in rank order -> int8[d] in −1, 1. Called with h >= 1 only: on
        what no honest worker votes on, it abstains. The input stays as it is.
        """


class Omniscient(BallotAttack):
    """Cancels the honest votes where it can, and opposes them where it can't: f colluders, honest sum s, by coordinate.

        |s| > f:   all vote against s, in vain
        |s| ≤ f:   |s| vote against s, the others cancel one another: the total is 0

    Where parity forbids 0 the one left over votes against s too, and the total turns round by 1. Who votes against
    rotates with coordinate and step, so that all colluders look alike.
    """

    def votes(self, honest: Signs, step: int) -> Signs:
        """Return −sign(s) where it is this colluder's turn to oppose, else sign(s); an s of 0 counts as ±1 by turns."""
        total = honest.sum(axis=0, dtype=np.int64)
        colluders, places = len(self.ranks), np.arange(len(total)) + step
        leaning = np.where(total == 0, 1 - 2 * (places // colluders % 2), np.sign(total))
        against = np.minimum((colluders + np.abs(total) + 1) // 2, colluders)
        opposes = (places + self.ranks.index(self.rank)) % colluders < against
        return np.where(opposes, -leaning, leaning).astype(np.int8)


class ALIESign(BallotAttack):
    """Votes the sign of mean − z·std of the honest signs, as `ALIE` says it of gradients.

    So it votes −, except where the honest workers are nearly at one for +.
    """

    def votes(self, honest: Signs, step: int) -> Signs:
        """Return sign(mean − z·std), with + for 0: a fair share of 0 hides nothing."""
        mean, std = honest.mean(axis=0), honest.std(axis=0)
        return np.where(mean - hidden_deviations(self.size, len(self.ranks)) * std < 0, -1, 1).astype(np.int8)


class InnerProductSign(BallotAttack):
    """Votes against the honest majority: the most coordinates that f votes can turn round."""

    def votes(self, honest: Signs, step: int) -> Signs:
        """Return −sign(s); an s of 0 counts as ±1 by coordinate and step, alike for all colluders."""
        total = honest.sum(axis=0, dtype=np.int64)
        turns = 1 - 2 * ((np.arange(len(total)) + step) % 2)
        return np.where(total == 0, turns, -np.sign(total)).astype(np.int8)


def hidden_deviations(workers: int, liars: int) -> float:
    """Return z of `ALIE`: Φ⁻¹((n − f − s)/(n − f)), with s = floor(n/2 + 1) − f honest workers needed for a majority.

    s is at least 1 and z at least 0: liars who are the majority need not hide.

    >>> round(hidden_deviations(7, 3), 4), round(hidden_deviations(50, 24), 4), hidden_deviations(3, 2)
    (0.6745, 1.4261, 0.0)
    """
    honest = workers - liars
    supporters = max(workers // 2 + 1 - liars, 1)
    return max(NormalDist().inv_cdf(max((honest - supporters) / honest, 0.5)), 0.0)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean in float64, added in rank order."""
    total = tensors[0].double().clone()
    for tensor in tensors[1:]:
        total += tensor
    return torch.div(total, len(tensors))
