"""The vote along a tree: tallies are added on the way up, and the verdict is passed down."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..topology import Tree, binary_tree
from .vote import Vote


class TreeVote(Vote):
    """The exact majority of all ranks, although each talks with its neighbors in a tree alone.

    A rank with s ranks below it and itself sends the counters of these s ballots up, ceil(log2(s+1)) bits a coordinate:
    one at a leaf. The root decides, and one verdict goes down each edge. Two messages an edge, 2·depth of them in a row.

    Args:
        tree: of comm.size nodes; by default the binary tree with a pendant root of Vogels et al. 2021.
        root: the rank that decides.
    """

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        *args: Any,
        tree: Tree | None = None,
        root: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(comm, layout, *args, **settings)
        tree = tree or binary_tree(comm.size)
        if tree.size != comm.size:
            raise ValueError(f"a tree of {tree.size} nodes for {comm.size} ranks: they must be as many")
        parents = tree.rooted(root)
        below = [self.ballots * ranks for ranks in _ranks_below(parents)]
        self._parent = parents[comm.rank]
        self._children = [rank for rank, parent in enumerate(parents) if parent == comm.rank]
        self._tally = kernels.Tally(layout, below[comm.rank])
        self._inbox = {child: self._message(below[child]) for child in self._children}
        self._below = below
        self._outbox = self._message(below[comm.rank])

    def _message(self, ballots: int) -> Tensor:
        """Room for a tally of so many ballots: voters of each parameter, voters on anything, counters."""
        return torch.zeros(len(self.layout.numels) + 1 + ballots.bit_length() * self.layout.words, dtype=torch.uint64)

    def _decide(self, ballot: Tensor, key: int) -> None:
        parameters, words = len(self.layout.numels), self.layout.words
        self._tally.clear()
        with self.watch("vote"):
            self._tally.add(self._each_ballot(ballot, self.layout))
        for child, message in self._inbox.items():
            self.comm.receive(message, child)
            with self.watch("vote"):
                voters = message[:parameters].numpy().astype(np.int64)
                counters = message[parameters + 1 :].view(-1, words)
                self._tally.merge(counters, voters, self._below[child], int(message[parameters]))
        if self._parent is None:
            self._close(self._tally, key, self.verdict)
        else:
            with self.watch("vote"):
                self._outbox[:parameters] = torch.from_numpy(self._tally.voters.astype(np.uint64))
                self._outbox[parameters] = self._tally.count
                self._outbox[parameters + 1 :] = self._tally.counters().view(-1)
            self.comm.send(self._outbox, self._parent)
            self.comm.receive(self.verdict.message, self._parent)
        for child in self._children:
            self.comm.send(self.verdict.message, child)


def _ranks_below(parents: tuple[int | None, ...]) -> list[int]:
    """How many ranks each rank's subtree has, itself among them."""
    below = [0] * len(parents)
    for rank in range(len(parents)):
        above: int | None = rank
        while above is not None:
            below[above] += 1
            above = parents[above]
    return below
