import numpy as np
import pytest

from mpisign.errors import TopologyError
from mpisign.topology import Graph, complete, weights
from mpisign.topology.random_graphs import erdos_renyi, random_regular, small_world

BUILDERS = [random_regular, erdos_renyi, small_world]

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


@pytest.mark.parametrize("build", BUILDERS)
def test_the_same_seed_gives_the_same_graph_and_another_seed_another(build):
    assert build(20, seed=3) == build(20, seed=3)
    assert len({build(20, seed=seed) for seed in range(5)}) == 5


@pytest.mark.parametrize("build", BUILDERS)
def test_numpys_global_generator_is_left_alone(build):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    build(20)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("degree", range(2, 16))
def test_in_a_random_regular_graph_all_have_that_many_neighbours(degree):
    for seed in range(4):
        assert {len(each) for each in random_regular(16, degree, seed).neighbors} == {degree}


def test_random_regular_graphs_are_drawn_alike():
    counts: dict[Graph, int] = {}
    for seed in range(700):
        graph = random_regular(5, 2, seed)  # a ring: there are 4!/2 = 12 of five nodes
        counts[graph] = counts.get(graph, 0) + 1
    assert len(counts) == 12
    expected = 700 / 12
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 31.3  # χ² of 11 degrees, 1 in 1000


def test_random_regular_graphs_are_expanders():
    gaps = [weights.spectral_gap(weights.metropolis_hastings(random_regular(n, 4, seed=1))) for n in (16, 64, 128)]
    assert min(gaps) > 0.1  # the limit is 1 − (1 + 2√3)/5 = 0.107 (Friedman 2008), from above; a ring of 128 has 0.0008


@pytest.mark.parametrize(
    "n, degree, message",
    [
        (5, 3, "no connected graph of 5 nodes has 3 neighbours at each: choose a degree from 2 to 4, an even one"),
        (4, 4, "choose a degree from 2 to 3$"),
        (6, 1, "choose a degree from 2 to 5"),
        (3, 0, "choose a degree from 2 to 2, an even one"),
        (4, -1, "has -1 neighbours"),
        (0, 2, "at least 1 node"),
    ],
)
def test_degrees_that_can_not_be_are_refused(n, degree, message):
    with pytest.raises(TopologyError, match=message):
        random_regular(n, degree)


def test_the_smallest_random_regular_graphs_are_complete():
    assert [random_regular(n, n - 1) for n in (1, 2, 3, 4)] == [complete(n) for n in (1, 2, 3, 4)]


def test_an_erdos_renyi_graph_has_p_of_all_edges():
    edges = [len(erdos_renyi(30, 0.4, seed).edges) for seed in range(20)]
    assert np.mean(edges) == pytest.approx(0.4 * 435, abs=4 * (435 * 0.24 / 20) ** 0.5)  # four standard errors


def test_certainty_gives_the_complete_graph():
    assert erdos_renyi(7, 1.0) == complete(7)
    assert erdos_renyi(1) == complete(1)


def test_a_p_that_hardly_ever_connects_says_what_would():
    with pytest.raises(
        TopologyError, match=r"none of 1000 .* connected: choose a p above ln\(n\)/n = 0.092, not 0.001"
    ):
        erdos_renyi(40, 0.001)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("build", [lambda p: erdos_renyi(9, p), lambda p: small_world(9, 4, p)])
def test_what_is_no_probability_is_refused(build, p):
    with pytest.raises(TopologyError, match="p is a probability, 0 to 1"):
        build(p)


def test_without_rewiring_a_small_world_is_a_lattice_and_rewiring_keeps_the_number_of_edges():
    lattice = small_world(12, 4, 0.0)
    assert lattice.neighbors[0] == (1, 2, 10, 11)
    for p in (0.1, 0.5, 1.0):
        assert len(small_world(12, 4, p).edges) == len(lattice.edges) == 24


def test_a_little_rewiring_makes_a_large_world_small():
    assert small_world(100, 4, 0.0).diameter == 25
    assert max(small_world(100, 4, 0.2, seed).diameter for seed in range(5)) <= 12


@pytest.mark.parametrize(
    "n, degree, message",
    [(10, 3, "an even degree from 2 to 9, got 3"), (4, 4, "got 4"), (9, 0, "got 0"), (2, 2, "at least 3 nodes")],
)
def test_a_small_world_needs_an_even_degree(n, degree, message):
    with pytest.raises(TopologyError, match=message):
        small_world(n, degree)
