import pytest
import torch

from mpisign import simulate
from mpisign.collectives.spanning_tree import spanning_tree, tree_of
from mpisign.errors import DeadlockError, DisagreementError, TopologyError
from mpisign.seeding import generator
from mpisign.topology import Graph, chain, complete, hypercube, ring, spanning, star
from mpisign.topology.random_graphs import erdos_renyi


def random_graph(number: int) -> Graph:
    """A connected graph of 2 to 40 nodes, thin or thick."""
    random = generator(number, 0, "test")
    n = int(random.integers(2, 41))
    return erdos_renyi(n, float(random.uniform(min(0.6, 3 / n), 0.6)), seed=number)


def talk(graph: Graph, root: int | None = None, check: bool = False, log=None):
    return simulate(graph.size, lambda comm: spanning_tree(comm, graph.neighbors[comm.rank], root, check), log=log)


def same_as_searched(graph: Graph, root: int | None) -> None:
    log: list = []
    places = talk(graph, root, log=log)
    r = 0 if root is None else root
    tree = spanning.spanning_tree(graph, r)
    parents, far = tree.rooted(r), max(graph.distances(r))
    for rank, place in enumerate(places):
        assert place.root == r
        assert place.parent == parents[rank]
        assert place.path == graph.path(r, rank)
        assert place.children == tuple(child for child, parent in enumerate(parents) if parent == rank)
        assert place.depth == graph.distance(r, rank)
    (election,) = {place.counts.election for place in places}
    assert election <= (2 * far + 1 if root is None else 0)
    assert max(place.counts.rounds for place in places) - election == (far + 1 if graph.size > 1 else 0)
    assert {(message.source, message.dest) for message in log} <= {
        (i, j) for i in range(graph.size) for j in graph.neighbors[i]
    }
    assert sum(place.counts.messages for place in places) == len(log)
    assert sum(place.counts.nbytes for place in places) == sum(message.nbytes for message in log)


@pytest.mark.parametrize("number", range(30))
def test_messages_between_neighbours_find_the_tree_that_the_whole_graph_gives(number):
    graph = random_graph(number)
    same_as_searched(graph, None if number % 2 else number % graph.size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(30, 200))
def test_they_find_it_in_every_one_of_two_hundred_graphs(number):
    graph = random_graph(number)
    same_as_searched(graph, None if number % 2 else number % graph.size)


@pytest.mark.parametrize(
    "graph", [chain(1), chain(2), chain(9), ring(8), ring(9), star(7, 3), complete(6), hypercube(8)]
)
def test_the_usual_graphs_are_no_exception(graph):
    same_as_searched(graph, None)
    same_as_searched(graph, graph.size - 1)


def test_the_election_does_not_depend_on_where_the_smallest_rank_stands():
    for center in range(5):
        assert {place.root for place in talk(star(5, center))} == {0}
    path = Graph.from_edges(5, [(4, 2), (2, 0), (0, 3), (3, 1)])
    assert {place.root for place in talk(path)} == {0}


def test_all_ranks_can_put_the_whole_tree_together():
    graph = random_graph(3)
    trees = simulate(graph.size, lambda comm: tree_of(comm, spanning_tree(comm, graph, 1)))
    assert set(trees) == {spanning.spanning_tree(graph, 1)}


def test_a_rank_stops_as_soon_as_its_own_edges_are_done():
    rounds = [place.counts.rounds for place in talk(chain(6), root=0)]
    assert rounds == [2, 3, 4, 5, 6, 6]  # both ends of an edge have spoken one round after the farther one was reached


def test_a_block_is_as_long_on_every_edge_and_in_every_round():
    log: list = []
    talk(chain(5), log=log)
    assert {message.nbytes for message in log} == {8 * (5 + 5)}


def test_edges_that_only_one_end_knows_are_an_error_on_all_ranks():
    named = [(1,), (0, 2), ()]
    failed = []

    def body(comm):
        try:
            spanning_tree(comm, named[comm.rank])
        except TopologyError as error:
            failed.append((comm.rank, str(error)))

    simulate(3, body)
    message = "node 1 names neighbour 2, but 2 doesn't name 1: add it there, or leave it out here"
    assert sorted(failed) == [(rank, message) for rank in range(3)]


def test_unchecked_they_are_a_deadlock_that_the_simulator_names():
    named = [(1,), (0, 2), ()]
    with pytest.raises(DeadlockError, match="rank 1 waits for rank 2"):
        simulate(3, lambda comm: spanning_tree(comm, named[comm.rank], check=False))


def test_two_parts_are_refused_and_unchecked_make_a_tree_each():
    named = [(2,), (3,), (0,), (1,)]
    with pytest.raises(TopologyError, match="node 1 can't be reached from node 0"):
        simulate(4, lambda comm: spanning_tree(comm, named[comm.rank]))
    places = simulate(4, lambda comm: spanning_tree(comm, named[comm.rank], check=False))
    assert [place.root for place in places] == [0, 1, 0, 1]


@pytest.mark.parametrize("named", [[(2,), (3,), (0,), (1,)], [(2,), (), (0,), ()]])
def test_a_part_without_the_given_root_gives_up_instead_of_talking_for_ever(named):
    with pytest.raises(TopologyError, match=r"no path from rank 0 has come to rank [13]: the graph is not connected"):
        simulate(4, lambda comm: spanning_tree(comm, named[comm.rank], root=0, check=False))


@pytest.mark.parametrize(
    "neighbors, message",
    [
        (lambda rank: (rank,), r"rank 0 names neighbour 0 among \[0\]: wanted other ranks, 0 to 2, once each"),
        (lambda rank: (1, 1) if rank == 0 else (0,), r"rank 0 names neighbour 1 among \[1, 1\]"),
        (lambda rank: (7,), "rank 0 names neighbour 7"),
        (lambda rank: chain(4), "a graph of 4 nodes for 3 ranks"),
    ],
)
def test_neighbours_that_can_not_be_are_refused_on_all_ranks(neighbors, message):
    def body(comm):
        with pytest.raises(TopologyError, match=message):
            spanning_tree(comm, neighbors(comm.rank))

    simulate(3, body)


def test_different_roots_and_different_graphs_are_refused_on_all_ranks():
    def roots(comm):
        with pytest.raises(DisagreementError, match="different roots"):
            spanning_tree(comm, chain(3), root=comm.rank)

    def graphs(comm):
        with pytest.raises(DisagreementError, match="different graphs"):
            spanning_tree(comm, chain(3) if comm.rank else star(3))

    simulate(3, roots)
    simulate(3, graphs)


def test_a_root_that_is_no_rank_is_refused():
    with pytest.raises(TopologyError, match="root 3 is no rank: choose one of 0 to 2"):
        simulate(3, lambda comm: spanning_tree(comm, chain(3), root=3))


def test_a_second_protocol_on_the_same_edges_starts_afresh():
    def body(comm):
        places = [spanning_tree(comm, ring(6), root=root) for root in (5, 2)]
        comm.exchange({rank: torch.tensor([comm.rank]) for rank in ring(6).neighbors[comm.rank]})
        return [place.root for place in places]

    assert simulate(6, body) == [[5, 2]] * 6
