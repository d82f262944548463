"""The vote of machines: each votes as its own ranks' majority. It is not the majority of the ranks."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from .server import ServerVote
from .vote import Vote


class MajorityOfMajorities(Vote):
    """Two votes by server: within each machine, then between machines, each of which has one ballot.

    It moves fewer bytes between machines than any exact vote, one bit a coordinate each way, but the verdict may be that
    of a minority: in (+ + −) (+ + −) (− − −) five of nine ranks are for −, and + wins by two machines to one. Liars who
    sit together on few machines count for less; two of three on most machines are enough to decide.
    A tie within a machine falls by a coin, or + with tie="plus"; `tie` says what becomes of one between machines.
    """

    exact: ClassVar[bool] = False

    def __init__(self, comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> None:
        super().__init__(comm, layout, *args, **settings)
        leads = comm.node.rank == 0
        leaders = comm.split(int(leads))
        self._within = ServerVote(
            comm.node, layout, "plus" if self.tie == "plus" else "coin", watch=self.watch, ballots=self.ballots
        )
        self._between = ServerVote(leaders, layout, self.tie, watch=self.watch) if leads else None
        machine = next(m for m, ranks in enumerate(comm.nodes) if comm.rank in ranks)
        self._within.coins = kernels.stream(self.coins, 1 + machine)
        if self._between is not None:
            self._between.coins = self.coins
        self._ballot = torch.zeros(layout.message, dtype=torch.uint64)

    def _decide(self, ballot: Tensor, key: int) -> None:
        own = self._within(ballot, key)
        if self._between is not None:
            self._ballot.numpy()[: self.layout.header] = own.header
            self._ballot.numpy()[self.layout.header :] = own.words
            self.verdict.message.copy_(self._between(self._ballot, key).message)
        self.comm.node.bcast(self.verdict.message)
        voters = torch.tensor([own.voters if self.comm.node.rank == 0 else 0])
        self.verdict.count[0] = int(self.comm.allreduce(voters))
