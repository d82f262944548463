"""The vote of ranks that share machines: counted in shared memory, then added across machines."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from .vote import Vote


class HierarchicalVote(Vote):
    """The exact majority of all ranks, where only tallies travel between machines.

    Ranks write their ballots into memory that their machine shares. Lane l of every machine, its l-th rank, counts the
    machine's ballots on one L-th of the words, L being the ranks of the smallest machine; then the l-th ranks of all N
    machines swap their tallies as in the sharded vote, each decides one N-th of the lane, and they swap what they decided.
    Between machines a lane sends (N−1)/N·(ceil(log2(k+1)) + 1)·d/8/L bytes for k ranks a machine; within, no message.
    """

    def __init__(self, comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> None:
        super().__init__(comm, layout, *args, **settings)
        lanes, largest = min(map(len, comm.nodes)), max(map(len, comm.nodes))
        machine = next(m for m, ranks in enumerate(comm.nodes) if comm.rank in ranks)
        self._lanes, self._lane = lanes, comm.nodes[machine].index(comm.rank)
        self._ballots = comm.shared(lanes * self.ballots * (layout.header + -(-layout.words // lanes)))
        self._decided = comm.shared(len(self.verdict.message))
        self._peers = [ranks[self._lane] for ranks in comm.nodes] if self._lane < lanes else []
        share = -(-layout.words // lanes)
        start, stop = (min(lane * share, layout.words) for lane in (self._lane, self._lane + 1))
        self._lane_start, lane = start, layout.part(start, stop)
        self._counted = kernels.Tally(lane, len(comm.nodes[machine]) * self.ballots)
        self._piece = -(-share // len(comm.nodes))  # words of a lane that each machine decides
        self._planes = (largest * self.ballots).bit_length()
        self._start, end = (min(start + m * self._piece, stop) for m in (machine, machine + 1))
        self._total = kernels.Tally(layout.part(self._start, end), comm.size * self.ballots)
        self._verdict = kernels.Verdict(self._total.layout, self.tie)

    def _decide(self, ballot: Tensor, key: int) -> None:
        row = self._ballots.rows[self.comm.node.rank]
        self._cut(ballot, self._lanes, row)
        self._ballots.fence()
        if self._peers:
            with self.watch("vote"):
                self._count()
            self._add_up()
            self._close(self._total, key, self._verdict)
            self._spread()
        self._decided.fence()
        self.verdict.message.copy_(self._decided.rows[0])

    def _count(self) -> None:
        """Count this machine's ballots in this rank's lane."""
        self._counted.clear()
        for row in self._ballots.rows:
            self._counted.add(self._each_ballot(row.view(self._lanes, -1)[self._lane], self._counted.layout))

    def _add_up(self) -> None:
        """Add the tallies of all machines, each on the words that the receiver decides."""
        own, parameters = self._counted, len(self.layout.numels)
        message = np.zeros((len(self._peers), parameters + 2 + self._planes * self._piece), np.uint64)
        message[:, :parameters] = own.voters
        message[:, parameters], message[:, parameters + 1] = own.count, own.added
        counters, words = own.counters().numpy(), own.layout.words
        for machine, row in enumerate(message[:, parameters + 2 :].reshape(len(self._peers), self._planes, -1)):
            start, stop = (min(m * self._piece, words) for m in (machine, machine + 1))
            row[: len(counters), : stop - start] = counters[:, start:stop]
        outbox = {peer: torch.from_numpy(row) for peer, row in zip(self._peers, message, strict=True)}
        mine = outbox.pop(self.comm.rank)
        self._total.clear()
        for tally in (mine, *self.comm.exchange(outbox).values()):
            with self.watch("vote"):
                self._merge(tally.numpy(), parameters)

    def _merge(self, message: "np.typing.NDArray[np.uint64]", parameters: int) -> None:
        added = int(message[parameters + 1])
        counters = message[parameters + 2 :].reshape(self._planes, -1)[: added.bit_length()]
        counters = np.ascontiguousarray(counters[:, : self._total.layout.words])
        voters = message[:parameters].astype(np.int64)
        self._total.merge(torch.from_numpy(counters), voters, added, int(message[parameters]))

    def _spread(self) -> None:
        """Write what this lane has decided on all machines into this machine's memory."""
        planes = 2 if self.tie == "abstain" else 1
        message = np.zeros((planes, self._piece), np.uint64)
        message[0, : len(self._verdict.words)] = self._verdict.words
        message[-1, : len(self._verdict.ties)] = self._verdict.ties if planes == 2 else message[0, :0]
        mine = torch.from_numpy(message.reshape(-1))
        heard = self.comm.exchange({peer: mine for peer in self._peers if peer != self.comm.rank}) | {
            self.comm.rank: mine
        }
        lane = np.concatenate([heard[peer].numpy().reshape(planes, -1) for peer in self._peers], axis=1)
        lane = lane[:, : self._counted.layout.words]
        header, words = self.layout.header, self.layout.words
        memory = self._decided.rows[0].numpy()
        for plane, row in enumerate(lane):
            first = header + 1 + plane * words + self._lane_start
            memory[first : first + len(row)] = row
        if self._lane == 0:
            memory[:header], memory[header] = self._verdict.header, self._verdict.count[0]
