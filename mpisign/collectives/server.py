"""The vote of the paper: one rank gathers the ballots, counts them and broadcasts the verdict."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from .vote import Vote, count_arrivals


class ServerVote(Vote):
    """Majority vote by parameter server (Bernstein et al. 2019, Algorithm 1); rank `server` may also be a worker.

    The server counts ballots as they arrive: whatever the number of workers n, it holds eight ballots and the bit-sliced
    counters, log2(n+1) ballots in size; all n of them where they are scored. Up: one ballot a worker. Down: one verdict
    a worker.
    """

    can_score: ClassVar[bool] = True

    def __init__(self, comm: Comm, layout: kernels.Layout, *args: Any, server: int = 0, **settings: Any) -> None:
        super().__init__(comm, layout, *args, **settings)
        self.server = server
        self._tally = kernels.Tally(layout, comm.size * self.ballots) if comm.rank == server else None

    def _decide(self, ballot: Tensor, key: int) -> None:
        if self.scored:
            self._decide_scored(ballot, key)
            return
        count_arrivals(self.comm, ballot, self.server, self._tally, self.watch)
        if self._tally is not None:
            self._close(self._tally, key, self.verdict)
        self.comm.bcast(self.verdict.message, self.server)

    def _decide_scored(self, ballot: Tensor, key: int) -> None:
        gathered, scores = self.comm.gather(ballot, self.server), torch.zeros((self.comm.size, 2), dtype=torch.int64)
        if gathered is not None and self._tally is not None:
            heard = gathered.clone() if self.excluded.any() else gathered
            self._silence(heard)
            self._tally.clear()
            with self.watch("vote"):
                self._tally.add([one for message in heard for one in self._each_ballot(message, self.layout)])
            self._close(self._tally, key, self.verdict)
            with self.watch("vote"):
                scores = self._score(gathered, self.verdict)
        self.comm.bcast(self.verdict.message, self.server)
        self.scores[:] = self.comm.bcast(scores.view(-1), self.server).numpy().reshape(-1, 2)
