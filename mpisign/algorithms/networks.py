"""From what a user says about the network to trees, graphs and gossip weights that fit the ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import TopologyError
from ..topology import Digraph, Graph, OnePeerExponential, Topology, Tree, parse, size_of
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
