"""Who sends to whom, where who sends need not receive: graphs for push-sum."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import TopologyError
from .checks import check_connected, check_node, checked_neighbors, neighbors_from
from .search import Neighbors, breadth_first, depths, first_unreached


@dataclass(frozen=True)
class Digraph:
    """A strongly connected directed graph on the nodes 0 … size−1. Node i sends to `successors[i]`, in ascending order.

    Raises:
        TopologyError: a successor that is no node, is its own or is named twice; a node that can't be reached from node 0,
            or that can't reach it, whose news would never arrive.

    >>> ring = Digraph(((1,), (2,), (0,)))
    >>> ring.predecessors, ring.distance(0, 2), ring.distance(2, 0)
    (((2,), (0,), (1,)), 2, 1)
    """

    successors: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        successors = checked_neighbors(self.successors, "digraph")
        check_connected(successors)
        if (node := first_unreached(_reversed(successors))) is not None:
            raise TopologyError(
                f"node {node} can't reach node 0: add an edge out of its part, so that the graph is strongly connected"
            )
        object.__setattr__(self, "successors", successors)

    @classmethod
    def from_edges(cls, size: int, edges: Iterable[tuple[int, int]]) -> "Digraph":
        """Return the digraph on `size` nodes with these edges (from, to).

        >>> Digraph.from_edges(2, [(0, 1), (1, 0)]).successors
        ((1,), (0,))
        """
        return cls(neighbors_from(size, edges, "digraph", directed=True))

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.successors)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges (from, to) in ascending order."""
        return tuple((i, j) for i, each in enumerate(self.successors) for j in each)

    @property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each node those that send to it, in ascending order."""
        return _reversed(self.successors)

    @property
    def diameter(self) -> int:
        """The largest distance from one node to another."""
        return max(max(self.distances(node)) for node in range(self.size))

    def distance(self, i: int, j: int) -> int:
        """Return the number of hops from node i to node j; the way back may be longer."""
        check_node(j, self.size, "digraph")
        return self.distances(i)[j]

    def distances(self, i: int) -> tuple[int, ...]:
        """Return the numbers of hops from node i to all nodes."""
        check_node(i, self.size, "digraph")
        hops = depths(breadth_first(self.successors, i))
        return tuple(hops[node] for node in range(self.size))


def _reversed(successors: Neighbors) -> Neighbors:
    predecessors: list[list[int]] = [[] for _ in successors]
    for i, each in enumerate(successors):
        for j in each:
            predecessors[j].append(i)
    return tuple(map(tuple, predecessors))
