import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpisign.errors import TopologyError
from mpisign.topology import Digraph


@st.composite
def digraphs(draw, largest=12):
    """A directed ring on shuffled nodes, and some more edges."""
    size = draw(st.integers(1, largest))
    names = draw(st.permutations(range(size)))
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges = {(names[k], names[(k + 1) % size]) for k in range(size)} | set(draw(st.lists(pairs, max_size=2 * size)))
    return Digraph.from_edges(size, sorted((i, j) for i, j in edges if i != j))


@given(digraphs())
def test_distances_follow_the_arrows_as_in_networkx(digraph):
    other = networkx.DiGraph(digraph.edges)
    other.add_nodes_from(range(digraph.size))
    lengths = dict(networkx.all_pairs_shortest_path_length(other))
    for i in range(digraph.size):
        assert digraph.distances(i) == tuple(lengths[i][j] for j in range(digraph.size))
        assert digraph.predecessors[i] == tuple(sorted(other.predecessors(i)))
    assert digraph.diameter == networkx.diameter(other)
    assert Digraph.from_edges(digraph.size, digraph.edges) == digraph


def test_a_directed_ring_is_far_round():
    ring = Digraph(((1,), (2,), (3,), (0,)))
    assert (ring.distance(0, 3), ring.distance(3, 0), ring.diameter) == (3, 1, 3)


@pytest.mark.parametrize(
    "successors, message",
    [
        (((), (0,)), "node 1 can't be reached from node 0"),
        (((1,), ()), "node 1 can't reach node 0: add an edge out of its part, so that the graph is strongly connected"),
        (((1, 2), (0,), ()), "node 2 can't reach node 0"),
    ],
)
def test_news_must_come_from_everywhere_to_everywhere(successors, message):
    with pytest.raises(TopologyError, match=message):
        Digraph(successors)


def test_an_edge_and_the_way_back_are_two_edges_but_none_is_given_twice():
    assert Digraph.from_edges(2, [(0, 1), (1, 0)]).edges == ((0, 1), (1, 0))
    with pytest.raises(TopologyError, match=r"edge 0→1 is given twice: give each edge once$"):
        Digraph.from_edges(2, [(0, 1), (1, 0), (0, 1)])


@pytest.mark.parametrize("node", [-1, 2])
def test_a_question_about_no_node_is_refused(node):
    digraph = Digraph(((1,), (0,)))
    for ask in (digraph.distances, lambda node: digraph.distance(0, node)):
        with pytest.raises(TopologyError, match=f"no node {node} in a digraph of 2: its nodes are 0 to 1"):
            ask(node)
