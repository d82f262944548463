import numpy as np
import pytest
from hypothesis import given
from test_graph import graphs

from mpisign.errors import TopologyError
from mpisign.topology import binary_tree, chain, complete, exponential, hypercube, kary_tree, ring, star, torus
from mpisign.topology.davis import davis_southern_women
from mpisign.topology.weights import (
    checked,
    lazy,
    metropolis_hastings,
    push_sum,
    smallest_eigenvalue,
    spectral_gap,
)


@given(graphs())
def test_metropolis_hastings_weights_fit_every_graph_and_keep_the_mean(graph):
    weights = metropolis_hastings(graph)
    assert np.array_equal(weights, weights.T)
    assert np.array_equal(checked(weights, graph), weights)
    assert (np.diag(weights) >= 1 / (1 + graph.degree) - 1e-12).all()  # rounding of a sum of a few weights
    for i, j in graph.edges:
        assert weights[i, j] == 1 / (1 + max(len(graph.neighbors[i]), len(graph.neighbors[j])))


@pytest.mark.parametrize("n", [3, 4, 7, 16])
def test_in_a_ring_all_weights_are_a_third(n):
    assert np.allclose(metropolis_hastings(ring(n))[0, [0, 1, n - 1]], 1 / 3, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "graph, smallest",
    [
        (ring(8), -1 / 3),
        (ring(16), -1 / 3),
        (chain(16), -0.3205),
        (binary_tree(8), -0.203),
        (binary_tree(16), -0.298),
        (binary_tree(32), -0.348),
        (binary_tree(64), -0.378),
        (kary_tree(16, 3), -0.3045),
        (davis_southern_women(), -0.4343),
        (hypercube(16), -0.6),
    ],
)
def test_the_smallest_eigenvalues_are_the_papers(graph, smallest):
    decimals = 5e-4 if smallest in (-0.203, -0.298, -0.348, -0.378) else 5e-5  # half a unit of the last digit given
    assert smallest_eigenvalue(metropolis_hastings(graph)) == pytest.approx(smallest, abs=decimals)


@pytest.mark.parametrize("n", [1, 2, 3, 16])
def test_a_star_has_no_negative_eigenvalue(n):
    assert smallest_eigenvalue(metropolis_hastings(star(n))) > -1e-12  # rounding of the eigenvalues


@given(graphs())
def test_lazy_weights_have_no_negative_eigenvalue_and_fit_too(graph):
    weights = lazy(metropolis_hastings(graph))
    assert smallest_eigenvalue(weights) > -1e-12
    assert np.array_equal(checked(weights, graph), weights)


def test_the_gap_of_a_ring_is_the_textbooks():
    for n in (5, 16):
        assert spectral_gap(metropolis_hastings(ring(n))) == pytest.approx(
            2 / 3 * (1 - np.cos(2 * np.pi / n)), abs=1e-12
        )


def test_the_gap_is_what_a_round_of_gossip_leaves():
    weights = metropolis_hastings(torus(9))
    x = np.linspace(-1, 1, 9)
    for _ in range(14):  # then the slowest part is (1/2)^14 of the next one
        x = weights @ x
    again = weights @ x
    assert np.linalg.norm(again) / np.linalg.norm(x) == pytest.approx(1 - spectral_gap(weights), rel=1e-6)


def test_the_complete_graph_has_the_whole_gap_and_a_single_node_too():
    assert spectral_gap(metropolis_hastings(complete(6))) == pytest.approx(1, abs=1e-12)
    assert spectral_gap(metropolis_hastings(chain(1))) == 1.0


def test_ones_own_weights_may_be_lopsided_as_long_as_rows_and_columns_add_up():
    own = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]
    assert checked(own, complete(3)).dtype == np.float64
    with pytest.raises(TopologyError, match="not symmetric"):
        smallest_eigenvalue(np.array(own))
    assert spectral_gap(np.array(own)) == pytest.approx(0.5)  # the other eigenvalues are (1 + exp(±2πi/3))/2


@pytest.mark.parametrize(
    "own, message",
    [
        (np.eye(2), r"weights of shape \(2, 2\) for 3 nodes"),
        ([[1, 0, 0], [0, 2, -1], [0, -1, 2]], r"weight \[1, 2\] is -1.0: wanted a number from 0 to 1"),
        ([[1, 0, 0], [0, np.nan, 0], [0, 0, 1]], r"weight \[1, 1\] is nan"),
        ([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]], r"weight \[0, 2\] is 0.5, but 0 and 2 are no neighbours: wanted 0"),
        ([[0.5, 0.5, 0], [0.4, 0.5, 0], [0, 0, 1]], "row 1 of the weights adds up to 0.9: wanted 1"),
        ([[0.5, 0.5, 0], [0.6, 0.4, 0], [0, 0, 1]], "column [01] of the weights adds up to"),
    ],
)
def test_weights_that_would_change_the_mean_or_skip_an_edge_are_refused(own, message):
    with pytest.raises(TopologyError, match=message):
        checked(own, chain(3))


def test_weights_typed_with_ten_digits_pass():
    third = 0.3333333333
    checked(np.full((3, 3), third), complete(3))


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_push_sum_sends_all_that_there_is(n):
    digraph = exponential(n)
    weights = push_sum(digraph)
    assert np.allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-15)
    for i in range(n):
        assert set(np.flatnonzero(weights[i])) == {i, *digraph.predecessors[i]}
