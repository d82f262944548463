import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_graph import graphs

from mpisign.errors import TopologyError
from mpisign.topology import Graph, Tree, chain, complete, grid, ring, star
from mpisign.topology.repair import repaired, survivors
from mpisign.topology.spanning import spanning_tree


@st.composite
def accidents(draw):
    """A graph, a spanning tree of it, and some edges and nodes that get lost."""
    graph = draw(graphs(largest=9))
    lost = draw(st.lists(st.sampled_from(graph.edges), unique=True, max_size=4)) if graph.edges else []
    lost = [draw(st.sampled_from([edge, edge[::-1]])) for edge in lost]
    nodes = draw(st.lists(st.integers(0, graph.size - 1), unique=True, max_size=2))
    root = draw(st.integers(0, graph.size - 1))
    return graph, spanning_tree(graph, root), [*lost, *nodes]


@given(accidents())
def test_all_edges_that_are_left_stay_and_those_that_come_are_edges_of_the_graph(accident) -> None:
    graph, tree, lost = accident
    rest = networkx.Graph(graph.edges)
    rest.add_nodes_from(range(graph.size))
    rest.remove_edges_from(what for what in lost if isinstance(what, tuple))
    rest.remove_nodes_from(what for what in lost if isinstance(what, int))
    if len(rest) == 0 or not networkx.is_connected(rest):
        with pytest.raises(TopologyError, match="falls apart" if len(rest) else "are lost"):
            repaired(tree, graph, lost)
        return
    nodes = sorted(rest)
    found = {(nodes[i], nodes[j]) for i, j in repaired(tree, graph, lost).edges}  # a Tree: connected, without cycles
    assert found <= {tuple(sorted(edge)) for edge in rest.edges}
    left = {edge for edge in tree.edges if rest.has_edge(*edge)}
    assert left <= found  # so that as few as possible are new: what is left has len(nodes) − len(left) parts


def test_a_tree_that_has_lost_nothing_stays_as_it_is() -> None:
    assert repaired(chain(5), ring(5), []) == chain(5)
    assert repaired(chain(5), ring(5), [(0, 4)]) == chain(5)


def test_of_several_ways_the_one_with_short_delays_is_taken() -> None:
    halves = Tree.from_edges(8, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)])
    found = repaired(halves, complete(8), [(3, 4)])
    assert set(found.edges) - set(halves.edges) == {(1, 5)}  # middle to middle: 5 hops, not 7
    assert found.diameter == 5


def test_a_star_without_its_center_joins_the_others() -> None:
    found = repaired(star(6), complete(6), [0])
    assert found.size == 5
    assert found.diameter == 2  # a star again


def test_nodes_are_renumbered_in_their_order() -> None:
    graph = grid(9, rows=3)
    tree = spanning_tree(graph)
    nodes, edges = survivors(graph, [4, (0, 1)])
    assert nodes == [0, 1, 2, 3, 5, 6, 7, 8]
    assert (0, 1) not in edges and (1, 2) in edges and not any(4 in edge for edge in edges)  # noqa: PT018
    found = repaired(tree, graph, [4, (0, 1)])
    assert {(nodes[i], nodes[j]) for i, j in found.edges} <= edges


@pytest.mark.parametrize(
    "tree, graph, lost, words",
    [
        (chain(4), ring(5), [], "4 nodes in a graph of 5"),
        (star(4), ring(4), [], "edge 0-2 of the tree is none"),
        (chain(4), ring(4), [(0, 2)], "0-2 can't be lost"),
        (chain(4), ring(4), [4], "no node 4"),
        (chain(2), ring(2), [0, 1], "all 2 nodes are lost"),
        (chain(4), chain(4), [(2, 1)], "from node 0 to node 2"),
        (chain(4), chain(4), [1], "from node 0 to node 2"),
    ],
)
def test_what_does_not_go_is_said(tree: Tree, graph: Graph, lost: list, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        repaired(tree, graph, lost)
