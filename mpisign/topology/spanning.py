"""Spanning trees: a relay needs a tree, and most networks have many in them."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .checks import check_node
from .graph import Graph
from .search import breadth_first
from .tree import Tree

Objective = Literal["delay", "time", "product"]
"""What a tree over measured links makes small: see `measured_tree`."""

Matrix = npt.NDArray[np.float64]


def spanning_tree(graph: Graph, root: int = 0) -> Tree:
    """Return the tree in which the root's paths are the lexicographically smallest of its shortest paths in the graph.

    Its diameter is at most twice the root's eccentricity. `collectives.spanning_tree` finds the same tree by messages.
    Source: Vogels et al. 2021.

    >>> spanning_tree(Graph(((1, 2), (0, 3), (0, 3), (1, 2))), root=3).edges
    ((0, 1), (1, 3), (2, 3))
    """
    check_node(root, graph.size, "graph")
    parents = breadth_first(graph.neighbors, root)
    return Tree.from_edges(graph.size, [(node, up) for node, up in parents.items() if up is not None])


def best_spanning_tree(graph: Graph) -> Tree:
    """Return the `spanning_tree` of the smallest diameter; among equals, that of the smallest root.

    It may be one hop wider than that of `minimum_diameter_tree`, and needs every root to be tried.
    """
    return min((spanning_tree(graph, root) for root in range(graph.size)), key=lambda tree: tree.diameter)


def minimum_diameter_tree(graph: Graph) -> Tree:
    """Return a spanning tree of the smallest diameter that any has.

    The absolute center of the graph is the node, or the middle of an edge, whose distance ρ to the farthest node is
    smallest. Shortest paths from it make a tree of diameter 2ρ at most. No tree does better: the middle of the longest
    path of a tree of diameter D is within D/2 of all nodes, in the tree and so in the graph. Hence D >= 2ρ.
    Source: Hassin and Tamir 1995. O(nodes × edges).

    >>> minimum_diameter_tree(Graph(((1, 3), (0, 2), (1, 3), (0, 2)))).diameter
    3
    """
    center = _absolute_center(graph)
    parents = breadth_first(graph.neighbors, *center)
    edges = [(node, up) for node, up in parents.items() if up is not None]
    return Tree.from_edges(graph.size, [*edges, *([center] if len(center) == 2 else [])])


def _absolute_center(graph: Graph) -> tuple[int] | tuple[int, int]:
    """Return the node, or the two ends of the edge in whose middle the center is; a node where both do as well."""
    far = np.array([graph.distances(node) for node in range(graph.size)])
    node = int(far.max(axis=1).argmin())
    center: tuple[int] | tuple[int, int] = (node,)
    diameter = 2 * int(far[node].max())
    for i, j in graph.edges:
        if (through := 2 * int(np.minimum(far[i], far[j]).max()) + 1) < diameter:
            diameter, center = through, (i, j)
    return center


def link_seconds(latency: npt.ArrayLike, bandwidth: npt.ArrayLike, nbytes: float) -> Matrix:
    """Return how long a message of so many bytes takes on each link: latency [s] + nbytes / bandwidth [bytes/s].

    float64[n, n]; of the two directions of a link the slower one counts, as both are used in every round. The diagonal
    is 0. A link that does not exist has bandwidth 0, or latency inf.
    """
    with np.errstate(divide="ignore"):
        seconds = np.asarray(latency, np.float64) + nbytes / np.asarray(bandwidth, np.float64)
    if seconds.ndim != 2 or seconds.shape[0] != seconds.shape[1]:
        raise TopologyError(f"latency and bandwidth must be square matrices, a row for each node; got {seconds.shape}")
    seconds = np.maximum(seconds, seconds.T)
    np.fill_diagonal(seconds, 0.0)
    return seconds


def measured_tree(seconds: npt.ArrayLike, objective: Objective = "product") -> Tree:
    """Return the best tree over links that were measured; `seconds[i, j]` for a message between i and j, inf for no link.

    A round of a relay takes as long as the slowest edge of the tree, and news is as late as the tree is wide:

        delay     the smallest diameter; among those, the fastest slowest edge: steps matter, and not the time of each
        time      the fastest slowest edge; among those, the smallest diameter
        product   the smallest diameter × slowest edge: the seconds until news from one end is at the other

    All three are exact, not heuristic. A tree without the links slower than b has the smallest diameter D(b) that
    `minimum_diameter_tree` of the remaining graph has, and the best tree is one of these: b is the seconds of some link,
    D only falls with b, and for each value of D the smallest b that has it is found by bisection.

    Errors: TopologyError where seconds is not square, symmetric (`link_seconds` makes it so), positive and connected.
    """
    if objective not in get_args(Objective):
        raise TopologyError(f"objective must be one of {', '.join(get_args(Objective))}, got {objective!r}")
    costs = _checked(np.array(seconds, np.float64))
    n = len(costs)
    if n == 1:
        return Tree(((),))
    limits = np.unique(costs[np.isfinite(costs) & ~np.eye(n, dtype=bool)])
    widest = bisect_left(limits, True, key=lambda limit: _is_connected(costs <= limit))
    if widest == len(limits):
        raise TopologyError("the links with finite seconds don't connect all nodes: measure more of them")
    trees = _narrower_and_narrower(limits[widest:], lambda limit: minimum_diameter_tree(_graph(costs <= limit)))
    if objective == "delay":
        return trees[-1][1]
    if objective == "time":
        return trees[0][1]
    return min(trees, key=lambda found: found[0] * found[1].diameter)[1]


def slowest_edge(tree: Tree, seconds: npt.ArrayLike) -> float:
    """Return the largest of the tree's seconds: what a round of a relay takes; 0 for a single node."""
    costs = np.asarray(seconds, np.float64)
    return max((float(costs[i, j]) for i, j in tree.edges), default=0.0)


def _narrower_and_narrower(limits: Matrix, tree_within: Callable[[float], Tree]) -> list[tuple[float, Tree]]:
    """Return (slowest link allowed, tree) for each smallest diameter, beginning with the fewest links."""
    narrowest = tree_within(limits[-1]).diameter
    found, at = [(float(limits[0]), tree_within(limits[0]))], 0
    while (diameter := found[-1][1].diameter) > narrowest:
        at = bisect_left(limits, True, lo=at, key=lambda limit: tree_within(limit).diameter < diameter)
        found.append((float(limits[at]), tree_within(limits[at])))
    return found


def _checked(costs: Matrix) -> Matrix:
    if costs.ndim != 2 or costs.shape[0] != costs.shape[1] or not len(costs):
        raise TopologyError(f"seconds must be a square matrix, a row for each node; got shape {costs.shape}")
    wrong = np.isnan(costs) | (costs <= 0)
    np.fill_diagonal(wrong, False)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise TopologyError(
            f"seconds[{i}, {j}] is {costs[i, j]}: wanted a positive number, or inf where there is no link"
        )
    if not (costs == costs.T).all():
        i, j = np.argwhere(costs != costs.T)[0]
        raise TopologyError(
            f"seconds[{i}, {j}] is {costs[i, j]:g} and seconds[{j}, {i}] is {costs[j, i]:g}: give the slower one for both, "
            f"as link_seconds does"
        )
    return costs


def _is_connected(links: npt.NDArray[np.bool_]) -> bool:
    return len(breadth_first(_neighbors(links), 0)) == len(links)


def _graph(links: npt.NDArray[np.bool_]) -> Graph:
    return Graph(_neighbors(links))


def _neighbors(links: npt.NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(j) for j in np.flatnonzero(row) if j != i) for i, row in enumerate(links))
