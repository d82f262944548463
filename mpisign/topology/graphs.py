"""The usual graphs with cycles: ring, complete graph, grid, torus and hypercube. For gossip, not for relays."""

from collections.abc import Iterable
from math import isqrt

from ..errors import TopologyError
from .checks import check_size
from .graph import Graph


def ring(n: int) -> Graph:
    """Return 0-1-…-(n−1)-0; of two nodes, their one edge.

    >>> ring(4).edges
    ((0, 1), (0, 3), (1, 2), (2, 3))
    """
    return _from_links(n, ((i, (i + 1) % n) for i in range(n)))


def complete(n: int) -> Graph:
    """Return the graph in which all are neighbours.

    >>> complete(3).neighbors
    ((1, 2), (0, 2), (0, 1))
    """
    return _from_links(n, ((i, j) for i in range(n) for j in range(i)))


def grid(n: int, rows: int | None = None) -> Graph:
    """Return `rows` lines of n/rows nodes, each the neighbour of those beside, above and below it.

    Node r·columns + c stands in row r and column c. By default as square as n allows: a prime n gives a chain.

    >>> grid(6, rows=2).edges
    ((0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5))
    """
    rows, columns = _shape(n, rows, "grid")
    beside = [(i, i + 1) for i in range(n) if (i + 1) % columns]
    below = [(i, i + columns) for i in range(n - columns)]
    return _from_links(n, [*beside, *below])


def torus(n: int, rows: int | None = None) -> Graph:
    """Return the grid whose rows and columns are closed to rings: four neighbours each, where both are 3 or longer.

    By default as square as n allows: a prime n gives a ring.

    >>> torus(16).neighbors[0]
    (1, 3, 4, 12)
    """
    rows, columns = _shape(n, rows, "torus")
    beside = [(i, i - i % columns + (i + 1) % columns) for i in range(n)]
    below = [(i, (i + columns) % n) for i in range(n)]
    return _from_links(n, [*beside, *below])


def hypercube(n: int) -> Graph:
    """Return the graph in which the neighbours' numbers differ in one bit; n is a power of two.

    >>> hypercube(8).neighbors[0]
    (1, 2, 4)
    """
    check_size(n, "graph")
    if n & (n - 1):
        raise TopologyError(f"a hypercube needs a power of two of nodes, got {n}: the nearest are {_powers_around(n)}")
    return _from_links(n, ((i, i ^ (1 << bit)) for i in range(n) for bit in range(n.bit_length() - 1)))


def _from_links(n: int, links: Iterable[tuple[int, int]]) -> Graph:
    """Return the graph of links that may repeat, or lead from a node to itself where a row is that short."""
    check_size(n, "graph")
    return Graph.from_edges(n, sorted({(min(i, j), max(i, j)) for i, j in links if i != j}))


def _shape(n: int, rows: int | None, kind: str) -> tuple[int, int]:
    check_size(n, "graph")
    if rows is None:
        rows = next(rows for rows in range(isqrt(n), 0, -1) if n % rows == 0)
    if rows < 1 or n % rows:
        raise TopologyError(f"a {kind} of {n} nodes can't have {rows} rows: choose a divisor of {n}")
    return rows, n // rows


def _powers_around(n: int) -> str:
    return f"{1 << (n.bit_length() - 1)} and {1 << n.bit_length()}"
