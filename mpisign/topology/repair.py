"""A tree that has lost edges or nodes, made whole again with as few changes as can be."""

from collections.abc import Iterable, Sequence

from ..errors import TopologyError
from .checks import check_node
from .graph import Graph
from .search import breadth_first, depths
from .tree import Tree

Edge = tuple[int, int]
Lost = Iterable[int | Edge]
"""What is lost: nodes by their numbers, edges as pairs, in either direction."""


def repaired(tree: Tree, graph: Graph, lost: Lost) -> Tree:
    """Return a tree of the nodes that are left, with every edge of `tree` that is, and as few others of `graph` as join them.

    What is left of the tree are k parts, so k − 1 edges are new: none can do with fewer. Always the widest part is joined
    with another, by the edge that makes the smallest diameter, and of equal ones the smallest: a heuristic for short
    delays, which everybody computes alike. Nodes are renumbered from 0 in their order, as `Comm.split` does.

    Args:
        tree: in use.
        graph: who can talk to whom, the tree's edges among them.
        lost: see `Lost`; all that is lost, in all.

    Errors: TopologyError where the graph falls apart, where nobody is left, and for what doesn't fit together.

    >>> from mpisign.topology import chain, ring
    >>> repaired(chain(5), ring(5), [(2, 3)]).edges
    ((0, 1), (0, 4), (1, 2), (3, 4))
    >>> repaired(chain(5), ring(5), [2]).edges
    ((0, 1), (0, 3), (2, 3))
    """
    if tree.size != graph.size:
        raise TopologyError(f"a tree of {tree.size} nodes in a graph of {graph.size}: they must be as many")
    if strange := sorted(set(tree.edges) - set(graph.edges)):
        raise TopologyError(f"edge {strange[0][0]}-{strange[0][1]} of the tree is none of the graph")
    nodes, edges = survivors(graph, lost)
    place = {node: number for number, node in enumerate(nodes)}
    kept = [(place[i], place[j]) for i, j in tree.edges if (i, j) in edges]
    spare = [(place[i], place[j]) for i, j in sorted(edges - set(tree.edges))]
    while len(kept) < len(nodes) - 1:
        kept.append(_shortest_join(_neighbors(len(nodes), kept), spare, nodes))
    return Tree.from_edges(len(nodes), kept)


def survivors(graph: Graph, lost: Lost) -> tuple[list[int], set[Edge]]:
    """Return the nodes that are left, in their order, and the edges (i, j), i < j, between them.

    Errors: TopologyError for what is lost without having been there.
    """
    gone: set[int] = set()
    edges = set(graph.edges)
    for what in lost:
        if isinstance(what, tuple):
            edge = (min(what), max(what))
            if edge not in graph.edges:
                raise TopologyError(f"edge {what[0]}-{what[1]} can't be lost: the graph has none")
            edges.discard(edge)
        else:
            check_node(what, graph.size, "graph")
            gone.add(what)
    nodes = [node for node in range(graph.size) if node not in gone]
    if not nodes:
        raise TopologyError(f"all {graph.size} nodes are lost")
    return nodes, {(i, j) for i, j in edges if i not in gone and j not in gone}


def _neighbors(size: int, edges: Iterable[Edge]) -> list[list[int]]:
    neighbors: list[list[int]] = [[] for _ in range(size)]
    for i, j in edges:
        neighbors[i].append(j)
        neighbors[j].append(i)
    return neighbors


def _shortest_join(neighbors: Sequence[Sequence[int]], spare: Sequence[Edge], nodes: Sequence[int]) -> Edge:
    """Return the spare edge that joins the widest part of a forest with another, to the smallest diameter."""
    hops = [depths(breadth_first(neighbors, node)) for node in range(len(neighbors))]  # to all of the same part
    reach = [max(each.values()) for each in hops]
    widest = [max(reach[other] for other in each) for each in hops]
    part = hops[max(range(len(nodes)), key=lambda node: widest[node])]
    joins = [(i, j) for i, j in spare if (i in part) != (j in part)]
    if not joins:
        apart = next(node for node in range(len(nodes)) if node not in hops[0])
        raise TopologyError(
            f"with what is lost the graph falls apart: no way leads from node {nodes[0]} to node {nodes[apart]}"
        )
    return min(joins, key=lambda join: (max(widest[join[0]], widest[join[1]], sum(reach[k] for k in join) + 1), join))
