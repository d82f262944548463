"""Signum and signSGD with majority vote."""

from typing import Any, ClassVar

import numpy as np

from .. import kernels, registry, seeding
from ..collectives import Vote
from ..errors import ParameterError
from .base import Params, Report
from .flat import FlatOptimizer


class Signum(FlatOptimizer):
    """Signum with majority vote (Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019, Algorithm 1).

        worker:  v ← βv + (1−β)g,  sends sign(v)       one bit a coordinate
        server:  V = majority of the signs             one bit a coordinate back
        worker:  x ← x − η(V + λx)

    Args:
        params: parameters or groups; lr, momentum and weight_decay may differ between groups.
        lr: η >= 0, the step of every coordinate.
        momentum: β in [0, 1).
        weight_decay: λ >= 0, decoupled: it never enters the vote.
        vote: who counts: a name (`--vote`), or a subclass of `Vote`.
        tie: a coordinate whose votes are even gets a "coin" that all share, "plus", or nothing ("abstain").
        zero: a momentum of exactly 0 votes by a "coin" of its worker's own, or "plus".
        seed: names the coins.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-3
    kept: ClassVar[str] = "momentum"

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        vote: str | type[Vote] = "server",
        tie: kernels.Tie = "coin",
        zero: kernels.Zero = "coin",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        self.tie, self.zero, self.seed = tie, zero, seed
        self._vote = vote
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        self._vote_type: type[Vote] = registry.load("vote", self._vote) if isinstance(self._vote, str) else self._vote
        if not (isinstance(self._vote_type, type) and issubclass(self._vote_type, Vote)):
            raise ParameterError(f"vote must be a name or a subclass of mpisign.collectives.Vote, got {self._vote!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ParameterError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if self.tie not in ("coin", "plus", "abstain") or self.zero not in ("coin", "plus"):
            raise ParameterError(
                f"tie is coin, plus or abstain and zero is coin or plus; got tie={self.tie!r}, zero={self.zero!r}"
            )

    def settings(self) -> tuple[Any, ...]:
        """Vote, rules and seed: ranks that differ in them would wait for each other, or drift apart."""
        return (self._vote_type.__qualname__, self.tie, self.zero, self.seed)

    def keeps(self) -> bool:
        """Tell whether any group has momentum."""
        return any(group["momentum"] for group in self.param_groups)

    def connect(self) -> None:
        """Build the vote."""
        self.vote = self._vote_type(self.comm, self.layout, self.tie, self.seed, self.watch)
        self._coins = seeding.key(self.seed, self.comm.rank, "zeros")
        for index in range(len(self.direct) if self.keeps() else 0):
            self.remember(index)

    @property
    def bytes_up(self) -> int:
        """Bytes of a ballot."""
        return self.ballot.nbytes

    def update(self) -> Report:
        """Pack, vote, descend."""
        with self.watch("pack"):
            memory = self.memory if self.keeps() else None
            betas, gammas = self.each(_momentum), self.each(lambda group: 1 - _momentum(group))
            key = kernels.stream(self._coins, self.steps_taken)
            finite = kernels.sign_ballot(
                self.layout, self.gradients(), memory, betas, gammas, self.zero, key, self.ballot
            )
        verdict = self.vote(self.ballot, self.steps_taken)
        with self.watch("vote"):
            differ, voted = kernels.disagreement(self.ballot, verdict)  # now, while both are in the cache
        with self.watch("apply"):
            self._descend(verdict)
        return Report(verdict.voters, 1 - differ / voted if voted else float("nan"), finite)

    def _descend(self, verdict: kernels.Verdict) -> None:
        steps = self.each(lambda group: float(group["lr"]))
        decays = self.each(lambda group: 1 - float(group["lr"]) * float(group["weight_decay"]))
        in_place = [p if direct else None for p, direct in zip(self.parameters, self.direct, strict=True)]
        kernels.descend(in_place, verdict, steps, decays)
        for index in np.flatnonzero(verdict.decided & ~self.direct).tolist():
            self.move(index, kernels.unpack(verdict, index), float(steps[index]))


def _momentum(group: dict[str, Any]) -> float:
    return float(group["momentum"])


class SignSGD(Signum):
    """signSGD with majority vote: Signum without momentum (Bernstein, Wang, Azizzadenesheli, Anandkumar 2018).

    A gradient of exactly 0 votes by the rule `zero`. Arguments as in `Signum`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = Signum.default_lr,
        weight_decay: float = 0.0,
        *,
        vote: str | type[Vote] = "server",
        tie: kernels.Tie = "coin",
        zero: kernels.Zero = "coin",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        super().__init__(params, lr, 0.0, weight_decay, vote=vote, tie=tie, zero=zero, seed=seed, comm=comm)
