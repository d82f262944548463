"""The vote with n servers: each rank counts one n-th of the words."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from .vote import Vote


class ShardedVote(Vote):
    """Majority vote without a bottleneck: all-to-all, count, all-gather.

    Every rank sends, and receives, (n−1)/n of a ballot on the way up and (n−1)/n of a verdict on the way down, whatever
    the number of ranks n: the server's n−1 ballots are spread over all.
    """

    can_score: ClassVar[bool] = True

    def __init__(self, comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> None:
        super().__init__(comm, layout, *args, **settings)
        self._share = -(-layout.words // comm.size)
        start, stop = (min(rank * self._share, layout.words) for rank in (comm.rank, comm.rank + 1))
        self._tally = kernels.Tally(layout.part(start, stop), comm.size * self.ballots)
        self._decided = kernels.Verdict(self._tally.layout, self.tie)
        self._outbox = torch.zeros((comm.size, self.ballots * (layout.header + self._share)), dtype=torch.uint64)
        self._inbox = torch.empty_like(self._outbox)
        self._planes = 2 if self.tie == "abstain" else 1
        self._mine = torch.zeros(self._planes * self._share, dtype=torch.uint64)
        self._shards = torch.empty((comm.size, len(self._mine)), dtype=torch.uint64)

    def _decide(self, ballot: Tensor, key: int) -> None:
        self._cut(ballot, self.comm.size, self._outbox)
        inbox = self.comm.alltoall(self._outbox, self._inbox)
        with self.watch("vote"):
            self._count(inbox)
        self._close(self._tally, key, self._decided)
        share, words = self._share, self.layout.words
        mine, count = self._mine.numpy(), self._tally.layout.words
        mine[:count] = self._decided.words
        mine[share : share + len(self._decided.ties)] = self._decided.ties
        shards = self.comm.allgather(self._mine, self._shards).numpy().reshape(self.comm.size, self._planes, share)
        self.verdict.words[:] = shards[:, 0].reshape(-1)[:words]
        if self._planes == 2:
            self.verdict.ties[:] = shards[:, 1].reshape(-1)[:words]
        self.verdict.header[:] = self._decided.header
        self.verdict.count[:] = self._decided.count
        if self.scored:
            self.scores[:] = self.comm.allreduce(self._score(inbox, self._decided).view(-1)).numpy().reshape(-1, 2)

    def _count(self, inbox: Tensor) -> None:
        heard = inbox.clone() if self.excluded.any() else inbox
        self._silence(heard)
        self._tally.clear()
        self._tally.add([one for shard in heard for one in self._each_ballot(shard, self._tally.layout)])
