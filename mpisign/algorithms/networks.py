"""From what a user says about the network to trees, graphs and gossip weights that fit the ranks."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import TopologyError
from ..topology import Digraph, Graph, OnePeerExponential, Topology, Tree, complete, parse, size_of
from ..topology.repair import repaired, survivors
from ..topology.search import breadth_first, depths
from ..topology.weights import Matrix, checked, metropolis_hastings

Network = str | Topology | Sequence[Tree]
"""A name (`mpisign.topology.parse`), or a topology."""


def network_of(network: Network, size: int) -> Topology:
    """Return the topology; TopologyError where it is none, or has not `size` nodes."""
    found: Any = parse(network, size) if isinstance(network, str) else network
    if isinstance(found, Sequence):
        found = tuple(found)
    several = isinstance(found, tuple) and len(found) > 0 and all(isinstance(tree, Tree) for tree in found)
    if not several and not isinstance(found, Graph | Digraph | OnePeerExponential):
        raise TopologyError(f"topology must be a name or one of mpisign.topology's kinds, got {found!r}")
    for part in found if several else (found,):
        if size_of(part) != size:
            raise TopologyError(f"the topology has {size_of(part)} nodes, but there are {size} ranks")
    topology: Topology = found
    return topology


def trees_of(network: Network, size: int) -> tuple[Tree, ...]:
    """Return one or more trees; TopologyError for what has cycles, round which a relay would run for ever."""
    found = network_of(network, size)
    trees = []
    for part in found if isinstance(found, tuple) else (found,):
        if not isinstance(part, Graph):
            raise TopologyError(
                f"a relay needs a tree, and {type(part).__name__} {network} has edges that go one way: take a tree or a graph"
            )
        if len(part.edges) != size - 1:
            name = network if isinstance(network, str) else "…"
            raise TopologyError(
                f"a relay needs a tree, and {type(part).__name__} {name} has cycles: take a spanning tree of it, such as "
                f"spanning_tree:{name}"
            )
        trees.append(part if isinstance(part, Tree) else Tree(part.neighbors))
    return tuple(trees)


def network_without(network: Network | None, size: int, lost: Iterable[int]) -> Network | None:
    """Return a topology of the ranks that are left of `size`, renumbered in their order, with every edge that is left.

    Trees stay trees, and a graph that falls apart is joined again, by as few new edges as can be; any two ranks may talk to
    each other. A network of one-way edges, and None, are laid out anew, which needs a name.

    Errors: TopologyError where a network without a name has one-way edges.
    """
    lost = sorted(lost)
    found = () if network is None else network_of(network, size)
    parts = found if isinstance(found, tuple) else (found,)
    if found and all(isinstance(part, Graph) for part in parts):
        left = [_graph_without(part, lost) for part in parts if isinstance(part, Graph)]
        trees = tuple(part for part in left if isinstance(part, Tree))
        return trees if len(trees) == len(left) else left[0]
    if network is not None and not isinstance(network, str):
        raise TopologyError(f"{network!r} can't be laid out for fewer ranks: give its name")
    return network


def _graph_without(graph: Graph, lost: Sequence[int]) -> Graph:
    anybody = complete(graph.size)
    if len(graph.edges) == graph.size - 1:
        return repaired(Tree(graph.neighbors), anybody, lost)
    nodes, edges = survivors(graph, lost)
    place = {node: number for number, node in enumerate(nodes)}
    pairs = {(place[i], place[j]) for i, j in edges}
    while apart := _apart(len(nodes), pairs):
        pairs.add((0, apart))
    return Graph.from_edges(len(nodes), sorted(pairs))


def _apart(size: int, edges: Iterable[tuple[int, int]]) -> int:
    """The lowest node that node 0 can't reach; 0 where it reaches all."""
    neighbors: list[list[int]] = [[] for _ in range(size)]
    for i, j in edges:
        neighbors[i].append(j)
        neighbors[j].append(i)
    reached = depths(breadth_first(neighbors, 0))
    return min(set(range(size)) - set(reached), default=0)


def weights_of(network: Network, weights: Any, size: int) -> Matrix:
    """Return the gossip matrix of a graph: Metropolis-Hastings, `weights` on every edge, or `weights` itself."""
    graph = network_of(network, size)
    if not isinstance(graph, Graph):
        raise TopologyError(f"gossip needs an undirected graph, got {network!r}: take one, such as ring or torus")
    if weights is None:
        return metropolis_hastings(graph)
    if not isinstance(weights, int | float):
        return checked(weights, graph)
    matrix = np.zeros((size, size))
    for i, j in graph.edges:
        matrix[i, j] = matrix[j, i] = weights
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    return checked(matrix, graph)
