import pytest

from mpisign.errors import TopologyError
from mpisign.topology import Digraph, Graph, Tree


@pytest.mark.parametrize("kind", [Graph, Tree, Digraph])
def test_graphs_trees_and_digraphs_refuse_the_same_things_in_the_same_words(kind):
    name = kind.__name__.lower()
    for neighbors, message in [
        ((), f"a {name} needs at least 1 node, got 0; a single node is {kind.__name__}"),
        (((3,), (0,)), "node 0 names neighbour 3, but the nodes are 0 to 1; renumber them"),
        (((0,), (0,)), "node 0 is its own neighbour: leave the edge 0-0 out"),
        (((1,), (0, 0)), "node 1 names neighbour 0 2 times: name it once"),
        (((1,), (0,), (3,), (2,)), "node 2 can't be reached from node 0"),
    ]:
        with pytest.raises(TopologyError, match=message):
            kind(neighbors)
    for size in (0, -2, True, 1.5, "3"):
        with pytest.raises(TopologyError, match=f"a {name} needs (at least 1 node|a whole number of nodes), got"):
            kind.from_edges(size, [])


@pytest.mark.parametrize("kind", [Graph, Tree, Digraph])
def test_numbers_of_numpy_become_plain_ones(kind):
    import numpy as np

    neighbors = getattr(kind([np.array([1]), np.array([0])]), "successors" if kind is Digraph else "neighbors")
    assert neighbors == ((1,), (0,))
    assert {type(node) for each in neighbors for node in each} == {int}
