"""A vote: ballots in, one verdict out, the same bits on every rank."""

import abc

from torch import Tensor

from .. import kernels, seeding
from ..comm import Comm
from ..timing import Stopwatch


def count_arrivals(comm: Comm, ballot: Tensor, server: int, tally: kernels.Tally | None, watch: Stopwatch) -> None:
    """Let the server count all ranks' ballots as they arrive; the others have no tally, and send. Collective."""
    arrivals = comm.collect(ballot, server)
    if tally is None:
        for _ in arrivals:
            raise AssertionError("only the server receives ballots")
        return
    tally.clear()
    for ballots in arrivals:
        with watch("vote"):
            tally.add(ballots)


class Vote(abc.ABC):
    """Decides by majority, coordinate by coordinate; subclasses say who counts, and where.

    All votes give the same verdict for the same ballots, step and seed. All ranks call them together.

    Args:
        comm: the voters.
        layout: where each parameter's signs stand.
        tie: what a coordinate gets whose voters are even (`Verdict`).
        seed: names the stream of coins for ties.
        watch: receives the seconds of the phases "communicate" and "vote".

    Attributes:
        coins: the key of the coins for ties; step t tosses those of `kernels.stream(coins, t)`.
    """

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        tie: kernels.Tie = "coin",
        seed: int = 0,
        watch: Stopwatch | None = None,
    ) -> None:
        self.comm, self.layout, self.tie = comm, layout, tie
        self.watch = watch or Stopwatch()
        self.verdict = kernels.Verdict(layout, tie)
        self.coins = seeding.key(seed, seeding.SHARED, "ties")

    def __call__(self, ballot: Tensor, step: int) -> kernels.Verdict:
        """Return the verdict on the ranks' ballots, each uint64[layout.message]; it is valid until the next call."""
        with self.watch("communicate"):
            self._decide(ballot, kernels.stream(self.coins, step))
        return self.verdict

    @abc.abstractmethod
    def _decide(self, ballot: Tensor, key: int) -> None:
        """Fill `self.verdict` on every rank; ties are tossed with `key`."""
