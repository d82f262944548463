"""Sums of signs: how many are for and how many against, where a vote would only say which are more."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..timing import Stopwatch
from .vote import count_arrivals


class SignSum:
    """Sums signs at one rank, which counts ballots as they arrive and broadcasts the counts (Safaryan, Richtárik 2021).

    Up: one ballot a worker, 1 bit a coordinate. Down: K = ceil(log2(n+1)) bits a coordinate, for n workers: K ballots in
    size, of which number k holds bit k of each count of negative signs and, in its header, of each parameter's voters;
    then one word with the number of workers that voted on anything. All ranks call it together.

    Args:
        comm: the workers.
        layout: where each parameter's signs stand.
        watch: receives the seconds of the phases "communicate" and "vote".
        server: the rank that counts; it is also a worker.

    Attributes:
        counts: int64[P], the voters of each parameter in the last call.
        voters: workers that voted on anything at all.
    """

    def __init__(self, comm: Comm, layout: kernels.Layout, watch: Stopwatch | None = None, server: int = 0) -> None:
        self.comm, self.layout, self.server = comm, layout, server
        self.watch = watch or Stopwatch()
        self.counts: npt.NDArray[np.int64] = np.zeros(len(layout.numels), np.int64)
        self.voters = 0
        self._tally = kernels.Tally(layout, comm.size) if comm.rank == server else None
        planes = comm.size.bit_length()
        self._message = torch.zeros(planes * layout.message + 1, dtype=torch.uint64)
        self._planes = self._message.numpy()[:-1].reshape(planes, layout.message)
        self._sums = torch.zeros(64 * layout.words)
        self._blocks = [
            self._sums[64 * start : 64 * start + numel]
            for start, numel in zip(layout.starts.tolist(), layout.numels.tolist(), strict=True)
        ]

    def __call__(self, ballot: Tensor) -> list[Tensor | None]:
        """Return each parameter's sum of its voters' signs, float32[numel], None where nobody votes; until the next call."""
        with self.watch("communicate"):
            self._count(ballot)
            self.comm.bcast(self._message, self.server)
        with self.watch("vote"):
            header = self.layout.header
            self.counts[:] = 0
            for k, plane in enumerate(self._planes):
                self.counts += self.layout.read_presence(plane[:header]).astype(np.int64) << k
            self.voters = int(self._message[-1])
            kernels.sign_sums(self.layout, self._planes[:, header:], self.counts, self._sums)
        return [block if count else None for block, count in zip(self._blocks, self.counts.tolist(), strict=True)]

    def _count(self, ballot: Tensor) -> None:
        count_arrivals(self.comm, ballot, self.server, self._tally, self.watch)
        if self._tally is None:
            return
        with self.watch("vote"):
            header = self.layout.header
            self._planes[:, header:] = self._tally.counters().numpy()
            for k, plane in enumerate(self._planes):
                self.layout.write_presence((self._tally.voters >> k & 1).astype(np.bool_), plane[:header])
            self._message[-1] = self._tally.count
