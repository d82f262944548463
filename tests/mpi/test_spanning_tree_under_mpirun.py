"""The spanning tree by messages over real MPI, with any number of ranks."""

import pytest

from mpisign.collectives.spanning_tree import spanning_tree, tree_of
from mpisign.errors import TopologyError
from mpisign.topology import chain, complete, spanning, star
from mpisign.topology.random_graphs import erdos_renyi

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("number", range(5))
def test_ranks_find_the_tree_that_the_whole_graph_gives(number: int) -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    graph = erdos_renyi(comm.size, min(1.0, 3 / comm.size), seed=number)
    root = None if number % 2 else number % comm.size
    place = spanning_tree(comm, graph.neighbors[comm.rank], root, check=number != 1)
    assert tree_of(comm, place) == spanning.spanning_tree(graph, root or 0)
    assert place.root == (root or 0)
    far = max(graph.distances(place.root))
    assert place.counts.rounds <= place.counts.election + far + 1
    assert place.counts.election <= 2 * far + 1


def test_the_thinnest_and_the_thickest_graphs_do_as_well() -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    for graph in (chain(comm.size), star(comm.size, comm.size - 1), complete(comm.size)):
        assert tree_of(comm, spanning_tree(comm, graph)) == spanning.spanning_tree(graph, 0)


def test_a_one_sided_edge_is_an_error_on_all_ranks() -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    neighbors = list(chain(comm.size).neighbors[comm.rank])
    if comm.size > 2 and comm.rank == 0:
        neighbors.append(comm.size - 1)
    if comm.size > 2:
        with pytest.raises(TopologyError, match=f"node 0 names neighbour {comm.size - 1}, but {comm.size - 1} doesn't"):
            spanning_tree(comm, neighbors)
    else:
        assert spanning_tree(comm, neighbors).root == 0
