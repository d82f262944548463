"""The vote with n servers: each rank counts one n-th of the words."""

import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..timing import Stopwatch
from .vote import Vote


class ShardedVote(Vote):
    """Majority vote without a bottleneck: all-to-all, count, all-gather.

    Every rank sends, and receives, (n−1)/n of a ballot on the way up and (n−1)/n of a verdict on the way down, whatever
    the number of ranks n: the server's n−1 ballots are spread over all.
    """

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        tie: kernels.Tie = "coin",
        seed: int = 0,
        watch: Stopwatch | None = None,
    ) -> None:
        super().__init__(comm, layout, tie, seed, watch)
        self._share = -(-layout.words // comm.size)
        start, stop = (min(rank * self._share, layout.words) for rank in (comm.rank, comm.rank + 1))
        self._tally = kernels.Tally(layout.part(start, stop), comm.size)
        self._decided = kernels.Verdict(self._tally.layout, tie)
        self._outbox = torch.zeros((comm.size, layout.header + self._share), dtype=torch.uint64)
        self._planes = 2 if tie == "abstain" else 1
        self._mine = torch.zeros(self._planes * self._share, dtype=torch.uint64)

    def _decide(self, ballot: Tensor, key: int) -> None:
        header, share, words = self.layout.header, self._share, self.layout.words
        outbox = self._outbox.numpy()
        outbox[:, :header] = ballot.numpy()[:header]
        for rank in range(self.comm.size):
            shard = ballot.numpy()[header + rank * share : header + min((rank + 1) * share, words)]
            outbox[rank, header : header + len(shard)] = shard
        inbox = self.comm.alltoall(self._outbox)
        with self.watch("vote"):
            self._tally.clear()
            self._tally.add([row[: self._tally.layout.message] for row in inbox])
            self._tally.decide(key, self._decided)
            mine, count = self._mine.numpy(), self._tally.layout.words
            mine[:count] = self._decided.words
            mine[share : share + len(self._decided.ties)] = self._decided.ties
        shards = self.comm.allgather(self._mine).numpy().reshape(self.comm.size, self._planes, share)
        self.verdict.words[:] = shards[:, 0].reshape(-1)[:words]
        if self._planes == 2:
            self.verdict.ties[:] = shards[:, 1].reshape(-1)[:words]
        self.verdict.header[:] = self._decided.header
        self.verdict.count[:] = self._decided.count
