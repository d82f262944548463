"""The vote of the paper: one rank gathers the ballots, counts them and broadcasts the verdict."""

from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..timing import Stopwatch
from .vote import Vote, count_arrivals


class ServerVote(Vote):
    """Majority vote by parameter server (Bernstein et al. 2019, Algorithm 1); rank `server` is also a worker.

    The server counts ballots as they arrive: whatever the number of workers n, it holds eight ballots and the bit-sliced
    counters, log2(n+1) ballots in size. Up: one ballot a worker. Down: one verdict a worker.
    """

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        tie: kernels.Tie = "coin",
        seed: int = 0,
        watch: Stopwatch | None = None,
        server: int = 0,
    ) -> None:
        super().__init__(comm, layout, tie, seed, watch)
        self.server = server
        self._tally = kernels.Tally(layout, comm.size) if comm.rank == server else None

    def _decide(self, ballot: Tensor, key: int) -> None:
        count_arrivals(self.comm, ballot, self.server, self._tally, self.watch)
        if self._tally is not None:
            with self.watch("vote"):
                self._tally.decide(key, self.verdict)
        self.comm.bcast(self.verdict.message, self.server)
