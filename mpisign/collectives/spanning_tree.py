"""A spanning tree by messages between neighbours alone: no rank knows more of the graph than its own edges.

Ranks talk in rounds. In each, a rank swaps one block with every neighbour whose edge is still open:

    election   Unless the root is given. Each rank starts a wave with its own number, and passes on the smallest that it
               has heard of; from whom it heard that first is its wave parent. A rank *echoes* once every neighbour has
               joined the same wave, and those whose wave parent it is have echoed. A wave that meets a smaller number is
               never echoed from there, so only the smallest rank's comes back: that rank is the root, and knows it.
    tree       The root says its path, (root). All neighbours of a rank at distance d that are nearer to the root speak in
               the same round, d; the rank takes the one of the lexicographically smallest path as its parent and says its
               own path in round d + 1. Who hears its number at the end but one of a path has a child there.
    the end    When both ends of an edge have said their paths, neither has more to say, and the edge is closed. A rank
               with no open edge is done. Nobody needs to know the diameter, the number of ranks or the round.

The tree is that of `topology.spanning.spanning_tree`. With ecc the root's distance to the farthest rank, the election takes
2·ecc + 1 rounds at most and the tree ecc + 1 more. Source: the tree is that of Vogels et al. 2021; the election is the echo
algorithm with extinction (Chang 1982).
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm import Comm
from ..errors import DisagreementError, TopologyError
from ..topology import Graph, Tree

_SAID, _ROOT, _PARENT, _ECHO, _ELECTION, _PATH = range(6)  # what stands where in a block; the path fills the rest
_NOBODY = -1


@dataclass(frozen=True)
class Counts:
    """What the protocol took: rounds of the election, all rounds until this rank was done, and what it sent."""

    election: int
    rounds: int
    messages: int
    nbytes: int


@dataclass(frozen=True)
class Place:
    """A rank's place in the tree: what it knows at the end."""

    root: int
    path: tuple[int, ...]
    children: tuple[int, ...]
    counts: Counts

    @property
    def parent(self) -> int | None:
        """The neighbour on the way to the root; None at the root."""
        return self.path[-2] if len(self.path) > 1 else None

    @property
    def depth(self) -> int:
        """The number of hops to the root."""
        return len(self.path) - 1


def spanning_tree(comm: Comm, neighbors: Graph | Iterable[int], root: int | None = None, check: bool = True) -> Place:
    """Return this rank's place in the spanning tree of the root, by default the smallest rank. All ranks must call it.

    Args:
        comm: for its ranks, and for messages to neighbours.
        neighbors: this rank's own neighbours; or the whole graph, of which it looks at these alone.
        root: the same on all ranks.
        check: compare beforehand, among all ranks, that neighbours name each other, that the graph is connected, and
            that all give the same root. Without it no message leaves the graph's edges, but ranks that don't name each
            other wait for ever (in the simulator: DeadlockError), and each part of a graph makes a tree of its own.

    Errors: TopologyError, on all ranks; DisagreementError where ranks give different graphs or roots. Without `check`,
    TopologyError where no path to a given root comes in as many rounds as there are ranks.
    """
    mine = _compared(comm, neighbors, root) if check else _own(comm, neighbors, root)
    return _Talk(comm, mine, root).run()


def tree_of(comm: Comm, place: Place) -> Tree:
    """Return the whole tree, put together from all ranks' places. All ranks must call it."""
    up = comm.allgather(torch.tensor([_NOBODY if place.parent is None else place.parent])).view(-1).tolist()
    return comm.together(
        lambda: Tree.from_edges(comm.size, [(rank, parent) for rank, parent in enumerate(up) if parent != _NOBODY])
    )


class _Talk:
    """One rank's part in the protocol."""

    def __init__(self, comm: Comm, neighbors: tuple[int, ...], root: int | None) -> None:
        self.comm, self.neighbors = comm, neighbors
        self.given = root is not None
        self.best = comm.rank if root is None else root  # the smallest number heard of
        self.wave_parent = _NOBODY
        self.path: tuple[int, ...] = ()
        self.election = self.rounds = self.messages = self.nbytes = 0
        self.heard = {neighbor: [0, *[_NOBODY] * (_PATH + comm.size - 1)] for neighbor in neighbors}  # of each the last
        self.open = set(neighbors)

    def run(self) -> Place:
        self._become_root_if_chosen()
        while self.open and (self.path or not self.given or self.rounds < self.comm.size):
            self._round()
        if not self.path:
            raise TopologyError(
                f"no path from rank {self.best} has come to rank {self.comm.rank}: the graph is not connected"
            )
        children = tuple(i for i in self.neighbors if _path(self.heard[i])[-2:] == (self.comm.rank, i))
        counts = Counts(self.election, self.rounds, self.messages, self.nbytes)
        return Place(self.best, self.path, children, counts)

    def _round(self) -> None:
        block = self._block()
        said = bool(self.path)
        received = self.comm.exchange(dict.fromkeys(sorted(self.open), block))
        self.rounds += 1
        self.messages += len(received)
        self.nbytes += len(received) * block.nbytes
        self.heard |= {i: each.tolist() for i, each in received.items()}
        if said:
            self.open -= {i for i, each in self.heard.items() if each[_SAID]}
        elif not self._take_path() and not self.given:
            self._join_smallest_wave()
            self._become_root_if_chosen()

    def _take_path(self) -> bool:
        """Take the smallest path that has come, if any has: all that are as short come in the same round."""
        said = [block for block in self.heard.values() if block[_SAID]]
        if not said:
            return False
        best = min(said, key=_path)
        self.path = (*_path(best), self.comm.rank)
        self.best, self.election = best[_ROOT], best[_ELECTION]
        return True

    def _join_smallest_wave(self) -> None:
        smallest, source = min((block[_ROOT], i) for i, block in self.heard.items())
        if smallest < self.best:
            self.best, self.wave_parent = smallest, source

    def _become_root_if_chosen(self) -> None:
        if self.best == self.comm.rank and (self.given or self._echoes()):
            self.path, self.election = (self.comm.rank,), self.rounds

    def _echoes(self) -> bool:
        """Tell whether all on this rank's side of its wave have joined it."""
        return all(
            block[_ROOT] == self.best and (block[_PARENT] != self.comm.rank or bool(block[_ECHO]))
            for i, block in self.heard.items()
            if i != self.wave_parent
        )

    def _block(self) -> Tensor:
        """What this rank has to say: int64[5 + size], the path padded with −1, so that all edges carry equal lengths."""
        block = torch.full((_PATH + self.comm.size,), _NOBODY)
        fields = [bool(self.path), self.best, self.wave_parent, self._echoes(), self.election, *self.path]
        block[: len(fields)] = torch.tensor(fields)
        return block


def _path(block: list[int]) -> tuple[int, ...]:
    return tuple(rank for rank in block[_PATH:] if rank != _NOBODY)


def _own(comm: Comm, neighbors: Graph | Iterable[int], root: int | None) -> tuple[int, ...]:
    """Return this rank's neighbours, after checks that need no message."""
    if root is not None and root not in range(comm.size):
        raise TopologyError(f"root {root} is no rank: choose one of 0 to {comm.size - 1}")
    if isinstance(neighbors, Graph):
        if neighbors.size != comm.size:
            raise TopologyError(f"a graph of {neighbors.size} nodes for {comm.size} ranks: one rank a node")
        return neighbors.neighbors[comm.rank]
    mine = tuple(neighbors)
    for i in mine:
        if i not in range(comm.size) or i == comm.rank or mine.count(i) > 1:
            raise TopologyError(
                f"rank {comm.rank} names neighbour {i} among {list(mine)}: wanted other ranks, 0 to {comm.size - 1}, "
                f"once each"
            )
    return tuple(sorted(map(int, mine)))


def _compared(comm: Comm, neighbors: Graph | Iterable[int], root: int | None) -> tuple[int, ...]:
    """Return this rank's neighbours, after a comparison among all ranks."""
    mine = comm.together(lambda: _own(comm, neighbors, root))
    comm.insist(_NOBODY if root is None else root, DisagreementError("ranks give different roots: give all the same"))
    graph = zlib.crc32(repr(neighbors.neighbors).encode()) if isinstance(neighbors, Graph) else 0
    comm.insist(graph, DisagreementError("ranks hold different graphs: build the same one on all"))
    row = torch.zeros(comm.size, dtype=torch.uint8)
    row[list(mine)] = 1
    rows = comm.allgather(row)
    comm.together(lambda: Graph(tuple(tuple(each.nonzero().view(-1).tolist()) for each in rows)))
    return mine
