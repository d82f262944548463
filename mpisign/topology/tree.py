"""A tree of ranks as data: who is whose neighbour, and how far it is from one to another."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import TopologyError

Parents = tuple[int | None, ...]
"""For each node the neighbour on its way to the root; None for the root itself."""


@dataclass(frozen=True)
class Tree:
    """A tree on the nodes 0 … size−1. `neighbors[i]` are those of node i; they are kept in ascending order.

    Raises:
        TopologyError: a neighbour that is no node, is its own, is named twice or doesn't name the node in return; a
            cycle; a node that can't be reached.

    >>> tree = Tree(((1,), (0, 2), (1,)))
    >>> tree.edges, tree.diameter, tree.path(0, 2)
    (((0, 1), (1, 2)), 2, (0, 1, 2))
    """

    neighbors: tuple[tuple[int, ...], ...]
    _parents: Parents = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_neighbors(self.neighbors)
        neighbors = tuple(tuple(sorted(map(int, each))) for each in self.neighbors)
        _check_acyclic(neighbors)
        _check_connected(neighbors)
        object.__setattr__(self, "neighbors", neighbors)
        object.__setattr__(self, "_parents", _parents(neighbors, 0))

    @classmethod
    def from_edges(cls, size: int, edges: Iterable[tuple[int, int]]) -> "Tree":
        """Return the tree on `size` nodes with these edges, each given once, in either direction.

        >>> Tree.from_edges(3, [(0, 2), (2, 1)]).neighbors
        ((2,), (2,), (0, 1))
        """
        if size < 1:
            raise TopologyError(f"a tree needs at least 1 node, got {size}")
        neighbors: list[list[int]] = [[] for _ in range(size)]
        for i, j in edges:
            if i not in range(size) or j not in range(size):
                raise TopologyError(f"edge {i}-{j}: the nodes of a tree of {size} are 0 to {size - 1}; renumber them")
            if j in neighbors[i]:
                raise TopologyError(f"edge {i}-{j} is given twice: give each edge once, in either direction")
            neighbors[i].append(j)
            neighbors[j].append(i)
        return cls(tuple(map(tuple, neighbors)))

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.neighbors)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The size−1 edges (i, j), i < j, in ascending order."""
        return _edges(self.neighbors)

    @property
    def degree(self) -> int:
        """The largest number of neighbours that a node has."""
        return max(map(len, self.neighbors))

    @property
    def diameter(self) -> int:
        """The number of hops of the longest path."""
        depths = _depths(self.neighbors, 0)
        end = depths.index(max(depths))  # what is farthest from any node is an end of a longest path
        return max(_depths(self.neighbors, end))

    def distance(self, i: int, j: int) -> int:
        """Return the number of hops from node i to node j."""
        return len(self.path(i, j)) - 1

    def path(self, i: int, j: int) -> tuple[int, ...]:
        """Return the nodes from i to j, both included."""
        up, down = self._to_node_0(i), self._to_node_0(j)
        shared = sum(a == b for a, b in zip(reversed(up), reversed(down), strict=False))  # on the way they go together
        return (*up[: len(up) - shared + 1], *reversed(down[: len(down) - shared]))

    def rooted(self, root: int) -> Parents:
        """Return each node's parent in the tree rooted at `root`, and None for the root.

        >>> Tree.from_edges(3, [(0, 1), (1, 2)]).rooted(1)
        (1, None, 1)
        """
        self._check_node(root)
        return _parents(self.neighbors, root)

    def _to_node_0(self, node: int) -> list[int]:
        self._check_node(node)
        path = [node]
        while (parent := self._parents[path[-1]]) is not None:
            path.append(parent)
        return path

    def _check_node(self, node: int) -> None:
        if node not in range(self.size):
            raise TopologyError(f"no node {node} in a tree of {self.size}: its nodes are 0 to {self.size - 1}")


def _edges(neighbors: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i, each in enumerate(neighbors) for j in each if i < j)


def _check_neighbors(neighbors: Sequence[Sequence[int]]) -> None:
    """Raise TopologyError unless each node has valid neighbours, once each, that name it in return."""
    if not neighbors:
        raise TopologyError("a tree needs at least 1 node, got 0; a single node is Tree(((),))")
    for i, each in enumerate(neighbors):
        for j in each:
            if j not in range(len(neighbors)):
                raise TopologyError(
                    f"node {i} names neighbour {j}, but the nodes are 0 to {len(neighbors) - 1}; renumber them"
                )
            if i == j:
                raise TopologyError(f"node {i} is its own neighbour: leave the edge {i}-{i} out")
            if each.count(j) > 1:
                raise TopologyError(f"node {i} names neighbour {j} {each.count(j)} times: name it once")
            if i not in neighbors[j]:
                raise TopologyError(
                    f"node {i} names neighbour {j}, but {j} doesn't name {i}: add it there, or leave it out here"
                )


def _check_acyclic(neighbors: Sequence[Sequence[int]]) -> None:
    group = list(range(len(neighbors)))  # nodes joined by the edges so far share a number
    for i, j in _edges(neighbors):
        if group[i] == group[j]:
            raise TopologyError(f"edge {i}-{j} closes a cycle: leave out one edge of it")
        old, new = group[i], group[j]
        group = [new if number == old else number for number in group]


def _check_connected(neighbors: Sequence[Sequence[int]]) -> None:
    found = _breadth_first(neighbors, 0)
    for node in range(len(neighbors)):
        if node not in found:
            raise TopologyError(f"node {node} can't be reached from node 0: add an edge that joins the two parts")


def _parents(neighbors: Sequence[Sequence[int]], root: int) -> Parents:
    found = _breadth_first(neighbors, root)
    return tuple(found[node] for node in range(len(neighbors)))


def _depths(neighbors: Sequence[Sequence[int]], root: int) -> list[int]:
    depths = [0] * len(neighbors)
    for node, parent in _breadth_first(neighbors, root).items():
        depths[node] = 0 if parent is None else depths[parent] + 1
    return depths


def _breadth_first(neighbors: Sequence[Sequence[int]], root: int) -> dict[int, int | None]:
    """Return {node: parent} of all that can be reached from root, in the order in which it is found."""
    parents: dict[int, int | None] = {root: None}
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        for neighbor in neighbors[node]:
            if neighbor not in parents:
                parents[neighbor] = node
                waiting.append(neighbor)
    return parents
