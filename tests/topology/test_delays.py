import numpy as np
import pytest
from hypothesis import given, settings
from test_tree import trees

from mpisign.errors import TopologyError
from mpisign.topology import binary_tree, chain, ring, star
from mpisign.topology.delays import (
    correction,
    delays,
    hops,
    mean_delay,
    mixing_matrix,
    rate,
    second_eigenvalue,
    stationary,
)


@pytest.mark.parametrize(
    "tree, kappa, digits",
    [
        (chain(8), 2.75, 0),
        (chain(16), 5.375, 0),
        (chain(32), 10.6875, 0),
        (binary_tree(8), 2.15625, 0),
        (binary_tree(16), 3.3203, 5e-5),  # half a unit of the last digit given
        (binary_tree(32), 4.7832, 5e-5),
        (star(16), 1.8203, 5e-5),
        (chain(80), 26.67, 5e-3),
    ],
)
def test_the_learning_rate_correction_is_the_papers(tree, kappa, digits):
    assert abs(correction(tree) - kappa) <= digits
    assert correction(tree, "overlapped") == pytest.approx(correction(tree) + (tree.size - 1) / tree.size, abs=1e-12)


def test_the_overlapped_corrections_are_the_papers():
    assert correction(chain(16), "overlapped") == 6.3125
    assert correction(binary_tree(16), "overlapped") == pytest.approx(4.2578, abs=5e-5)


@pytest.mark.parametrize("timing", ["synchronous", "overlapped"])
@given(tree=trees(largest=9))
@settings(max_examples=25)
def test_a_relay_of_numbers_is_as_late_as_the_matrix_says(timing, tree):
    """Each node says the step; what it last has of each, relayed as in Algorithm 1, is that many steps old."""
    n, steps = tree.size, tree.diameter + 3
    sent = {(i, j): np.full(n, -1) for i in range(n) for j in tree.neighbors[i]}
    for step in range(steps):
        own = [np.where(np.arange(n) == i, step, -1) for i in range(n)]
        before = sent
        sent = {
            (i, j): np.maximum.reduce([own[i], *(before[k, i] for k in tree.neighbors[i] if k != j)]) for i, j in before
        }
        used = sent if timing == "synchronous" else before
        newest = np.array([np.maximum.reduce([own[i], *(used[k, i] for k in tree.neighbors[i])]) for i in range(n)])
    assert np.array_equal(steps - 1 - newest, delays(tree, timing))


def test_hops_are_symmetric_and_delays_shorter_by_one():
    assert np.array_equal(hops(ring(6)), hops(ring(6)).T)
    assert delays(chain(4))[0].tolist() == [0, 0, 1, 2]
    assert delays(chain(4), "overlapped")[0].tolist() == [0, 1, 2, 3]
    assert mean_delay(chain(3)) == 2 / 9


def test_an_unknown_timing_is_refused():
    with pytest.raises(TopologyError, match="timing must be synchronous or overlapped, got 'late'"):
        delays(chain(3), "late")


MATRICES = {
    chain: {8: (0.8726, 91.2), 16: (0.9292, 150.9)},
    binary_tree: {8: (0.7983, 58.5), 16: (0.8484, 114.7), 32: (0.8890, 205.6)},
    star: {8: (0.8663, 36.5), 16: (0.9354, 60.1), 32: (0.9683, 95.9)},
}
CASES = [(build, n, *numbers) for build, sizes in MATRICES.items() for n, numbers in sizes.items()]


@pytest.mark.parametrize("build, n, second, ratio", CASES)
def test_the_mixing_matrix_has_the_papers_second_eigenvalue_and_rate(build, n, second, ratio):
    matrix = mixing_matrix(build(n))
    assert second_eigenvalue(matrix) == pytest.approx(second, abs=6e-5)  # .96825 is given as .9683
    assert rate(matrix) == pytest.approx(ratio, abs=0.05)


@pytest.mark.parametrize(
    "build, n, ratio", [(chain, 2, 9.35), (chain, 4, 32.9), (binary_tree, 4, 23.2), (star, 4, 23.2)]
)
def test_the_rates_of_the_smallest_trees_are_the_papers(build, n, ratio):
    assert rate(mixing_matrix(build(n))) == pytest.approx(ratio, abs=0.05)


@pytest.mark.slow
def test_the_longest_chain_of_the_papers_figure_has_its_numbers_too():
    matrix = mixing_matrix(chain(32))
    assert second_eigenvalue(matrix) == pytest.approx(0.9623, abs=5e-5)
    assert rate(matrix) == pytest.approx(296.2, abs=0.05)


@given(trees(largest=9))
@settings(max_examples=25)
def test_the_mixing_matrix_is_stochastic_and_its_newest_block_has_one_kappath_of_the_mass(tree):
    matrix = mixing_matrix(tree)
    n, mass = tree.size, stationary(mixing_matrix(tree))
    assert matrix.shape == (n * (tree.diameter + 1),) * 2
    assert np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert np.allclose(mass @ matrix, mass, rtol=0, atol=1e-12)
    assert mass.min() > -1e-12  # rounding of the solver
    assert mass[:n].sum() == pytest.approx(1 / correction(tree, "overlapped"), abs=1e-12)
    assert second_eigenvalue(matrix) < 1


def test_powers_of_the_mixing_matrix_go_where_the_stationary_mass_says():
    matrix = mixing_matrix(binary_tree(5))
    limit = np.linalg.matrix_power(matrix, 400)
    assert np.allclose(limit, np.outer(np.ones(len(matrix)), stationary(matrix)), rtol=0, atol=1e-10)


def test_a_single_node_needs_no_mixing():
    matrix = mixing_matrix(chain(1))
    assert (matrix.tolist(), second_eigenvalue(matrix), rate(matrix)) == ([[1.0]], 0.0, 1.0)
    assert correction(chain(1)) == correction(chain(1), "overlapped") == 1
