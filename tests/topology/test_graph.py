import dataclasses
import pickle

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpisign.errors import TopologyError
from mpisign.topology import Graph, Tree, chain, complete, grid, ring


@st.composite
def graphs(draw, largest=16):
    """A tree on shuffled nodes, and some more edges."""
    size = draw(st.integers(1, largest))
    names = draw(st.permutations(range(size)))
    edges = {frozenset((names[draw(st.integers(0, k - 1))], names[k])) for k in range(1, size)}
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    more = {frozenset(pair) for pair in draw(st.lists(pairs, max_size=2 * size)) if pair[0] != pair[1]}
    return Graph.from_edges(size, [tuple(edge) for edge in edges | more])


def in_networkx(graph):
    other = networkx.Graph(graph.edges)
    other.add_nodes_from(range(graph.size))
    return other


@given(graphs())
def test_distances_and_the_diameter_are_those_of_networkx(graph):
    other = in_networkx(graph)
    lengths = dict(networkx.all_pairs_shortest_path_length(other))
    for i in range(graph.size):
        assert graph.distances(i) == tuple(lengths[i][j] for j in range(graph.size))
        assert all(graph.distance(i, j) == lengths[i][j] for j in range(graph.size))
    assert graph.diameter == networkx.diameter(other)
    assert graph.degree == max(degree for _, degree in other.degree)


@given(graphs(largest=10), st.data())
def test_a_path_is_the_lexicographically_smallest_of_the_shortest_ones(graph, data):
    i, j = (data.draw(st.integers(0, graph.size - 1)) for _ in range(2))
    assert graph.path(i, j) == tuple(min(networkx.all_shortest_paths(in_networkx(graph), i, j)))


@given(graphs())
def test_edges_are_sorted_and_make_the_same_graph_again(graph):
    assert list(graph.edges) == sorted(graph.edges)
    assert all(i < j for i, j in graph.edges)
    assert Graph.from_edges(graph.size, [(j, i) for i, j in reversed(graph.edges)]) == graph
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert hash(Graph(tuple(tuple(reversed(each)) for each in graph.neighbors))) == hash(graph)


def test_one_node_is_a_graph():
    assert (Graph(((),)).size, Graph(((),)).edges, Graph(((),)).diameter, Graph(((),)).degree) == (1, (), 0, 0)


def test_a_tree_is_a_graph_but_no_graph_is_equal_to_a_tree():
    assert isinstance(chain(3), Graph)
    assert Graph(chain(3).neighbors) != chain(3)
    assert type(Tree.from_edges(2, [(0, 1)])) is Tree


def test_a_graph_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ring(3).neighbors = ()


@pytest.mark.parametrize(
    "neighbors, message",
    [
        ((), r"a graph needs at least 1 node, got 0; a single node is Graph\(\(\(\),\)\)"),
        (((1,), ()), "node 0 names neighbour 1, but 1 doesn't name 0: add it there, or leave it out here"),
        (((0,),), "node 0 is its own neighbour: leave the edge 0-0 out"),
        (((1, 1), (0,)), "node 0 names neighbour 1 2 times: name it once"),
        (((2,), (0,)), "node 0 names neighbour 2, but the nodes are 0 to 1; renumber them"),
        ((("1",), (0,)), "node 0 names neighbour 1, but the nodes are 0 to 1; renumber them"),
        (
            ((1, 2), (0, 2), (0, 1), (4,), (3,)),
            "node 3 can't be reached from node 0: add an edge that joins the two parts",
        ),
    ],
)
def test_what_is_no_connected_graph_is_refused_with_the_place_and_the_remedy(neighbors, message):
    with pytest.raises(TopologyError, match=message):
        Graph(neighbors)


@pytest.mark.parametrize(
    "size, edges, message",
    [
        (0, [], "a graph needs at least 1 node, got 0"),
        (2.0, [], "a graph needs a whole number of nodes, got 2.0"),
        (3, [(0, 3)], "edge 0-3: the nodes of a graph of 3 are 0 to 2; renumber them"),
        (3, [(0, 1), (1, 0)], "edge 1-0 is given twice: give each edge once, in either direction"),
        (2, [(1, 1)], "node 1 is its own neighbour: leave the edge 1-1 out"),
        (3, [(0, 1)], "node 2 can't be reached"),
    ],
)
def test_edges_that_make_no_graph_are_refused(size, edges, message):
    with pytest.raises(TopologyError, match=message):
        Graph.from_edges(size, edges)


@pytest.mark.parametrize("node", [-1, 4])
def test_a_question_about_no_node_is_refused(node):
    for ask in (ring(4).distances, lambda node: ring(4).distance(0, node), lambda node: ring(4).path(node, 0)):
        with pytest.raises(TopologyError, match=f"no node {node} in a graph of 4: its nodes are 0 to 3"):
            ask(node)


def test_thousands_of_nodes_and_edges_are_measured_in_a_moment():
    assert complete(150).diameter == 1
    assert grid(900).diameter == 58
