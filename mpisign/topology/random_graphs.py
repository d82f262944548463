"""Graphs drawn by chance: the same seed gives the same graph, everywhere."""

from collections.abc import Callable
from math import log

import numpy as np

from .. import seeding
from ..errors import TopologyError
from .checks import check_size
from .graph import Graph
from .search import first_unreached

_TRIES = 1000

Edges = set[tuple[int, int]]


def random_regular(n: int, degree: int = 4, seed: int = 0) -> Graph:
    """Return a connected random graph in which each node has `degree` neighbours.

    Nearly every such graph is an expander: a gap that doesn't shrink with n, for a constant number of messages a node.
    Pairs of free ends are joined at random, and all again where that comes to a dead end. Above n/2 neighbours the
    complement is drawn.
    Source: Steger and Wormald 1999, whose graphs are nearly uniform among all of that degree.

    Errors: TopologyError where there is no such graph: n·degree odd, degree >= n, degree < 2 for more than two nodes.
    """
    check_size(n, "graph")
    if not 0 <= degree < n or n * degree % 2 or (degree < 2 and n > degree + 1):
        raise TopologyError(
            f"no connected graph of {n} nodes has {degree} neighbours at each: choose a degree from {min(2, n - 1)} to "
            f"{n - 1}"
            f"{', an even one' if n % 2 else ''}"
        )
    random = seeding.generator(seed, seeding.SHARED, f"random_regular {n} {degree}")
    if degree > n // 2:
        every = {(i, j) for j in range(n) for i in range(j)}
        return _first_connected(n, lambda: every - _pairs(random, n, n - 1 - degree), "")
    return _first_connected(n, lambda: _pairs(random, n, degree), "choose another seed")


def erdos_renyi(n: int, p: float | None = None, seed: int = 0) -> Graph:
    """Return a connected graph in which each pair is an edge with probability p, independently of the others.

    By default p = 2·ln(n)/n, twice what makes a large graph connected. One that is not connected is drawn again, so
    what comes is the distribution given that it is connected. Source: Gilbert 1959; Erdős and Rényi 1960.

    Errors: TopologyError where p is none, or so small that hardly any graph is connected.
    """
    check_size(n, "graph")
    p = min(1.0, 2 * log(n) / n) if p is None else p
    if not 0 <= p <= 1:
        raise TopologyError(f"p is a probability, 0 to 1, got {p}")
    random = seeding.generator(seed, seeding.SHARED, f"erdos_renyi {n} {p!r}")

    def draw() -> Edges:
        return {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(random.random((n, n)) < p, 1)), strict=True)}

    return _first_connected(n, draw, f"choose a p above ln(n)/n = {log(n) / n:.2g}, not {p:g}")


def small_world(n: int, degree: int = 4, p: float = 0.1, seed: int = 0) -> Graph:
    """Return a connected ring with neighbours up to degree/2 places away, each edge rewired with probability p.

    A rewired edge i-j becomes i-k, with k drawn from those that i has no edge to. p = 0 is a lattice, p = 1 nearly a
    random graph. Source: Watts and Strogatz 1998.

    Errors: TopologyError where degree is not even and below n, or p no probability.
    """
    check_size(n, "graph")
    if degree % 2 or not 2 <= degree < n:
        raise TopologyError(
            f"a small world of {n} nodes needs an even degree from 2 to {n - 1}, got {degree}"
            if n > 2
            else f"a small world needs at least 3 nodes, got {n}"
        )
    if not 0 <= p <= 1:
        raise TopologyError(f"p is a probability, 0 to 1, got {p}")
    random = seeding.generator(seed, seeding.SHARED, f"small_world {n} {degree} {p!r}")

    def draw() -> Edges:
        edges = {_edge(i, (i + away) % n) for away in range(1, degree // 2 + 1) for i in range(n)}
        for away in range(1, degree // 2 + 1):
            for i in range(n):
                free = [k for k in range(n) if k != i and _edge(i, k) not in edges]
                if random.random() < p and free and _edge(i, (i + away) % n) in edges:
                    edges.remove(_edge(i, (i + away) % n))
                    edges.add(_edge(i, free[random.integers(len(free))]))
        return edges

    return _first_connected(n, draw, "choose a larger degree or a smaller p")


def _first_connected(n: int, draw: Callable[[], Edges], otherwise: str) -> Graph:
    for _ in range(_TRIES):
        edges = draw()
        neighbors: list[list[int]] = [[] for _ in range(n)]
        for i, j in edges:
            neighbors[i].append(j)
            neighbors[j].append(i)
        if first_unreached(neighbors) is None:
            return Graph.from_edges(n, sorted(edges))
    raise TopologyError(f"none of {_TRIES} random graphs of {n} nodes was connected: {otherwise}")


def _pairs(random: np.random.Generator, n: int, degree: int) -> Edges:
    """Return the edges of a random graph of that degree, connected or not."""
    while True:
        edges: Edges = set()
        ends = [node for node in range(n) for _ in range(degree)]
        while ends and (pair := _free_pair(random, ends, edges)):
            edges.add(pair)
            for node in pair:
                ends.remove(node)
        if not ends:
            return edges


def _free_pair(random: np.random.Generator, ends: list[int], edges: Edges) -> tuple[int, int] | None:
    """Return the nodes of two free ends that may be joined, all such pairs of ends alike; None at a dead end."""
    for _ in range(20):
        i, j = (ends[place] for place in random.integers(len(ends), size=2))
        if i != j and _edge(i, j) not in edges:
            return _edge(i, j)
    pairs = [(i, j) for i in ends for j in ends if i < j and (i, j) not in edges]
    return pairs[random.integers(len(pairs))] if pairs else None


def _edge(i: int, j: int) -> tuple[int, int]:
    return (i, j) if i < j else (j, i)
