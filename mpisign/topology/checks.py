"""What every graph must be: nodes that exist, no edge to itself, none twice; shared by Graph, Tree and Digraph."""

from collections.abc import Iterable, Sequence

from ..errors import TopologyError
from .search import Neighbors, first_unreached


def check_size(n: int, kind: str) -> None:
    """Raise TopologyError unless n is a number of nodes. `kind` begins the message: "tree"."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise TopologyError(f"a {kind} needs a whole number of nodes, got {n!r}")
    if n < 1:
        raise TopologyError(f"a {kind} needs at least 1 node, got {n}")


def check_node(node: int, size: int, kind: str) -> None:
    """Raise TopologyError unless the node exists."""
    if node not in range(size):
        raise TopologyError(f"no node {node} in a {kind} of {size}: its nodes are 0 to {size - 1}")


def checked_neighbors(neighbors: Sequence[Sequence[int]], kind: str) -> Neighbors:
    """Return the neighbours as tuples in ascending order; TopologyError unless they exist, once each, and no loops."""
    if not neighbors:
        raise TopologyError(f"a {kind} needs at least 1 node, got 0; a single node is {kind.title()}(((),))")
    nodes = range(len(neighbors))
    for i, each in enumerate(neighbors):
        for j in each:
            if j not in nodes:
                raise TopologyError(
                    f"node {i} names neighbour {j}, but the nodes are 0 to {len(neighbors) - 1}; renumber them"
                )
            if i == j:
                raise TopologyError(f"node {i} is its own neighbour: leave the edge {i}-{i} out")
        if len(set(each)) < len(each):
            twice = next(j for j in each if list(each).count(j) > 1)
            raise TopologyError(f"node {i} names neighbour {twice} {list(each).count(twice)} times: name it once")
    return tuple(tuple(sorted(map(int, each))) for each in neighbors)


def check_symmetric(neighbors: Neighbors) -> None:
    """Raise TopologyError unless each neighbour names the node in return."""
    named = [set(each) for each in neighbors]
    for i, each in enumerate(neighbors):
        for j in each:
            if i not in named[j]:
                raise TopologyError(
                    f"node {i} names neighbour {j}, but {j} doesn't name {i}: add it there, or leave it out here"
                )


def check_acyclic(neighbors: Neighbors) -> None:
    """Raise TopologyError where an edge closes a cycle."""
    above = list(range(len(neighbors)))  # of nodes joined by the edges so far, all lead up to the same one
    for i, j in edges_of(neighbors):
        if (top := _top(i, above)) == _top(j, above):
            raise TopologyError(f"edge {i}-{j} closes a cycle: leave out one edge of it")
        above[_top(j, above)] = top


def _top(node: int, above: list[int]) -> int:
    while above[node] != node:
        above[node] = above[above[node]]  # shortens the way for the next one
        node = above[node]
    return node


def check_connected(neighbors: Neighbors) -> None:
    """Raise TopologyError unless node 0 leads to all others."""
    if (node := first_unreached(neighbors)) is not None:
        raise TopologyError(f"node {node} can't be reached from node 0: add an edge that joins the two parts")


def neighbors_from(size: int, edges: Iterable[tuple[int, int]], kind: str, directed: bool = False) -> Neighbors:
    """Return each node's neighbours; TopologyError where an edge names no node, or is given twice."""
    check_size(size, kind)
    neighbors: list[dict[int, None]] = [{} for _ in range(size)]  # as ordered sets
    arrow, both = ("→", "once") if directed else ("-", "once, in either direction")
    for i, j in edges:
        if i not in range(size) or j not in range(size):
            raise TopologyError(
                f"edge {i}{arrow}{j}: the nodes of a {kind} of {size} are 0 to {size - 1}; renumber them"
            )
        if i == j:
            raise TopologyError(f"node {i} is its own neighbour: leave the edge {i}{arrow}{i} out")
        if j in neighbors[i]:
            raise TopologyError(f"edge {i}{arrow}{j} is given twice: give each edge {both}")
        neighbors[i][j] = None
        if not directed:
            neighbors[j][i] = None
    return tuple(tuple(sorted(map(int, each))) for each in neighbors)


def edges_of(neighbors: Neighbors) -> tuple[tuple[int, int], ...]:
    """Return the edges (i, j), i < j, of an undirected graph in ascending order."""
    return tuple((i, j) for i, each in enumerate(neighbors) for j in each if i < j)
