"""Who may talk to whom, in both directions, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from .checks import check_connected, check_node, check_symmetric, checked_neighbors, edges_of, neighbors_from
from .search import breadth_first, depths, longest_distance, path_to


@dataclass(frozen=True)
class Graph:
    """A connected undirected graph on the nodes 0 … size−1. `neighbors[i]` are those of node i, in ascending order.

    Raises:
        TopologyError: a neighbour that is no node, is its own, is named twice or doesn't name the node in return; a node
            that can't be reached.

    >>> square = Graph(((1, 3), (0, 2), (1, 3), (0, 2)))
    >>> square.edges, square.diameter, square.path(0, 2)
    (((0, 1), (0, 3), (1, 2), (2, 3)), 2, (0, 1, 2))
    """

    neighbors: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        neighbors = checked_neighbors(self.neighbors, self._kind())
        check_symmetric(neighbors)
        check_connected(neighbors)
        object.__setattr__(self, "neighbors", neighbors)

    @classmethod
    def from_edges(cls, size: int, edges: Iterable[tuple[int, int]]) -> Self:
        """Return the graph on `size` nodes with these edges, each given once, in either direction.

        >>> Graph.from_edges(3, [(0, 2), (2, 1), (0, 1)]).neighbors
        ((1, 2), (0, 2), (0, 1))
        """
        return cls(neighbors_from(size, edges, cls._kind()))

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.neighbors)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges (i, j), i < j, in ascending order."""
        return edges_of(self.neighbors)

    @property
    def degree(self) -> int:
        """The largest number of neighbours that a node has."""
        return max(map(len, self.neighbors))

    @property
    def diameter(self) -> int:
        """The largest distance between two nodes."""
        return longest_distance(self.neighbors)

    def distance(self, i: int, j: int) -> int:
        """Return the number of hops from node i to node j."""
        return len(self.path(i, j)) - 1

    def distances(self, i: int) -> tuple[int, ...]:
        """Return the numbers of hops from node i to all nodes."""
        check_node(i, self.size, self._kind())
        hops = depths(breadth_first(self.neighbors, i))
        return tuple(hops[node] for node in range(self.size))

    def path(self, i: int, j: int) -> tuple[int, ...]:
        """Return the nodes of the lexicographically smallest shortest path from i to j, both included."""
        check_node(i, self.size, self._kind())
        check_node(j, self.size, self._kind())
        return path_to(j, breadth_first(self.neighbors, i))

    @classmethod
    def _kind(cls) -> str:
        return cls.__name__.lower()
