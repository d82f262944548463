"""Breadth-first search: what the distances, paths and parents of all graphs are read from."""

from collections import deque
from collections.abc import Iterable, Sequence

Neighbors = tuple[tuple[int, ...], ...]
"""For each node those that it leads to, in ascending order."""

Parents = tuple[int | None, ...]
"""For each node the neighbour on its way to the root; None for the root itself."""


def breadth_first(neighbors: Sequence[Sequence[int]], *roots: int) -> dict[int, int | None]:
    """Return {node: parent} of all that can be reached from the roots, in the order in which it is found.

    Neighbours in ascending order are found in the lexicographic order of their paths, so that the parents lead along the
    lexicographically smallest of the shortest paths from a single root.

    >>> breadth_first(((1, 2), (0, 3), (0, 3), (1, 2)), 0)
    {0: None, 1: 0, 2: 0, 3: 1}
    """
    parents: dict[int, int | None] = dict.fromkeys(roots)
    waiting = deque(roots)
    while waiting:
        node = waiting.popleft()
        for neighbor in neighbors[node]:
            if neighbor not in parents:
                parents[neighbor] = node
                waiting.append(neighbor)
    return parents


def depths(parents: dict[int, int | None]) -> dict[int, int]:
    """Return {node: hops to its root} of what `breadth_first` has found.

    >>> depths({2: None, 1: 2, 0: 1})
    {2: 0, 1: 1, 0: 2}
    """
    hops: dict[int, int] = {}
    for node, parent in parents.items():  # a parent is found before its children
        hops[node] = 0 if parent is None else hops[parent] + 1
    return hops


def path_to(node: int, parents: dict[int, int | None]) -> tuple[int, ...]:
    """Return the nodes from the root to `node`, both included.

    >>> path_to(0, {2: None, 1: 2, 0: 1})
    (2, 1, 0)
    """
    path = [node]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return tuple(reversed(path))


def longest_distance(neighbors: Sequence[Sequence[int]]) -> int:
    """Return the diameter of a connected undirected graph, by as few searches as bounds on the eccentricities allow.

    A node w at distance d from v has an eccentricity of at least max(d, ecc(v)−d) and at most ecc(v)+d. In a tree two or
    three searches decide. Source: Takes and Kosters 2011, BoundingDiameters.

    >>> longest_distance(((1,), (0, 2), (1,)))
    2
    """
    lower, upper = dict.fromkeys(range(len(neighbors)), 0), dict.fromkeys(range(len(neighbors)), len(neighbors))
    diameter, widest = 0, False
    while upper:
        widest = not widest  # in turn a node that may be far out and one that may be a center
        node = max(upper, key=upper.__getitem__) if widest else min(upper, key=lower.__getitem__)
        hops = depths(breadth_first(neighbors, node))
        reach = max(hops.values())
        diameter = max(diameter, reach)
        for other in list(upper):
            lower[other] = max(lower[other], hops[other], reach - hops[other])
            upper[other] = min(upper[other], reach + hops[other])
            if upper[other] <= diameter or lower[other] == upper[other]:
                diameter = max(diameter, lower[other])
                del upper[other]
    return diameter


def first_unreached(neighbors: Sequence[Sequence[int]], roots: Iterable[int] = (0,)) -> int | None:
    """Return the smallest node that can't be reached from the roots, None where all can."""
    found = breadth_first(neighbors, *roots)
    return next((node for node in range(len(neighbors)) if node not in found), None)
