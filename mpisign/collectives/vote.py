"""A vote: ballots in, one verdict out, the same bits on every rank."""

import abc
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import kernels, seeding
from ..comm import Comm
from ..timing import Stopwatch


def count_arrivals(comm: Comm, ballot: Tensor, server: int, tally: kernels.Tally | None, watch: Stopwatch) -> None:
    """Let the server count all ranks' ballots as they arrive; the others have no tally, and send. Collective.

    A rank's message may hold several ballots, one after the other.
    """
    arrivals = comm.collect(ballot, server)
    if tally is None:
        for _ in arrivals:
            raise AssertionError("only the server receives ballots")
        return
    tally.clear()
    for messages in arrivals:
        with watch("vote"):
            tally.add([one for message in messages for one in message.view(-1, tally.layout.message)])


class Vote(abc.ABC):
    """Decides by majority, coordinate by coordinate; subclasses say who counts, and where.

    All votes but those that say otherwise (`exact`) give the same verdict for the same ballots, step and seed. All ranks
    call them together.

    Args:
        comm: the voters.
        layout: where each parameter's signs stand.
        tie: what a coordinate gets whose voters are even (`Verdict`).
        seed: names the stream of coins for ties.
        watch: receives the seconds of the phases "communicate" and "vote".
        ballots: how many a rank casts at once, one after the other in one message. With two, a rank can abstain on a
            coordinate: once for and once against changes nothing.
        scored: whether to compare every ballot with the verdict; the server then holds all of them until it has decided.

    Attributes:
        coins: the key of the coins for ties; step t tosses those of `kernels.stream(coins, t)`.
        scores: int64[n, 2] where scored: in how many coordinates each rank's last ballot differed from the verdict, and
            on how many it voted; the same on all ranks.
        excluded: bool[n], ranks whose ballots are not counted; to be set alike on all ranks. Takes effect where scored.
    """

    exact: ClassVar[bool] = True
    """Whether the verdict is that of the majority of all ballots."""

    can_score: ClassVar[bool] = False
    """Whether somebody sees every ballot: of added tallies nobody can tell whose they are."""

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        tie: kernels.Tie = "coin",
        seed: int = 0,
        watch: Stopwatch | None = None,
        ballots: int = 1,
        scored: bool = False,
    ) -> None:
        if scored and not self.can_score:
            raise ValueError(
                f"{type(self).__name__} can't compare ballots with the verdict: use the server's or sharded"
            )
        self.comm, self.layout, self.tie = comm, layout, tie
        self.watch = watch or Stopwatch()
        self.ballots, self.scored = ballots, scored
        self.verdict = kernels.Verdict(layout, tie)
        self.coins = seeding.key(seed, seeding.SHARED, "ties")
        self.scores: npt.NDArray[np.int64] = np.zeros((comm.size, 2), np.int64)
        self.excluded: npt.NDArray[np.bool_] = np.zeros(comm.size, np.bool_)

    def __call__(self, ballot: Tensor, step: int) -> kernels.Verdict:
        """Return the verdict on the ranks' ballots, each uint64[ballots * message]; it is valid until the next call."""
        with self.watch("communicate"):
            self._decide(ballot, kernels.stream(self.coins, step))
        return self.verdict

    @abc.abstractmethod
    def _decide(self, ballot: Tensor, key: int) -> None:
        """Fill `self.verdict` on every rank, and the scores; ties are tossed with `key`."""

    # ---- for subclasses ----

    def _close(self, tally: kernels.Tally, key: int, verdict: kernels.Verdict) -> None:
        """Let a full tally decide."""
        with self.watch("vote"):
            tally.decide(key, verdict)
            verdict.count //= self.ballots

    def _cut(self, ballot: Tensor, parts: int, shards: Tensor) -> None:
        """Write a rank's ballots, cut by words, into uint64[parts, ballots · (header + ceil(words/parts))]."""
        header, words = self.layout.header, self.layout.words
        share = -(-words // parts)
        whole = ballot.numpy().reshape(self.ballots, -1)
        for part, row in enumerate(shards.numpy().reshape(parts, self.ballots, header + share)):
            start, stop = min(part * share, words), min((part + 1) * share, words)
            row[:, :header] = whole[:, :header]
            row[:, header : header + stop - start] = whole[:, header + start : header + stop]

    def _each_ballot(self, shard: Tensor, layout: kernels.Layout) -> list[Tensor]:
        """The ballots in one rank's shard, each uint64[layout.message]."""
        return [one[: layout.message] for one in shard.view(self.ballots, -1)]

    def _silence(self, messages: Tensor) -> None:
        """Make abstentions of the messages uint64[n, …] of ranks that are excluded."""
        for rank in np.flatnonzero(self.excluded):
            messages.numpy()[rank].reshape(self.ballots, -1)[:, : self.layout.header] = 0

    def _score(self, messages: Tensor, verdict: kernels.Verdict) -> Tensor:
        """Compare the messages uint64[n, …] of all ranks with a verdict: int64[n, 2], as in `scores`."""
        # of two ballots the last: what differs from it is a zero
        last = [self._each_ballot(message, verdict.layout)[-1] for message in messages]
        return torch.tensor([kernels.disagreement(ballot, verdict) for ballot in last], dtype=torch.int64)


class VoteFactory(Protocol):
    """What makes a vote: a subclass of `Vote`, or a function with its constructor's arguments."""

    def __call__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        tie: kernels.Tie = "coin",
        seed: int = 0,
        watch: Stopwatch | None = None,
        ballots: int = 1,
        scored: bool = False,
    ) -> Vote:
        """Return the vote."""
