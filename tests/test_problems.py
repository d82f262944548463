"""The problems' gradients and optima, and on them every statement of the papers that needs a run."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from mpisign import reference, seeding, theory
from mpisign.problems import (
    HeterogeneousQuadratics,
    NoisyQuadratic,
    Problem,
    Rosenbrock,
    TwoVectors,
    geometric_median,
    sparse_noise,
)

PROBLEMS = {
    "noisy quadratic": (NoisyQuadratic(numel=65), 1),
    "sparse noise": (sparse_noise(), 1),
    "two vectors": (TwoVectors(), 1),
    "two vectors, distributed": (TwoVectors(epsilon=0.1, distributed=True), 2),
    "Rosenbrock": (Rosenbrock(), 1),
    "Rosenbrock, batches": (Rosenbrock(numel=3, batch=4), 1),
    "heterogeneous quadratics": (HeterogeneousQuadratics(noise=1.0), 3),
}
each_problem = pytest.mark.parametrize("problem, workers", PROBLEMS.values(), ids=PROBLEMS)


@each_problem
def test_gradients_are_finite_differences(problem: Problem, workers: int) -> None:
    x = problem.start + 0.1 * seeding.generator(0, 0, "point").standard_normal(len(problem.start))
    h = 1e-5
    differences = [(problem.value(x + h * e) - problem.value(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    # error h²f'''/6 of truncation (f''' < 1e4) and f·1e-16/h of rounding (f < 1e4), both near 1e-7
    np.testing.assert_allclose(problem.gradient(x), differences, rtol=1e-6, atol=1e-6)


@each_problem
def test_stochastic_gradients_are_unbiased_over_all_workers(problem: Problem, workers: int) -> None:
    x, generator = problem.start + 0.1, seeding.generator(0, 0, "noise")
    moments = theory.Moments(len(x))
    for _ in range(3000):
        moments.add(np.mean([problem.stochastic_gradient(x, generator, worker) for worker in range(workers)], axis=0))
    # 5 standard errors: one in a million a coordinate; 1e-12 where there is no noise but rounding
    assert (np.abs(moments.mean - problem.gradient(x)) <= 5 * moments.std / np.sqrt(3000) + 1e-12).all()


@each_problem
def test_the_optimum_is_one(problem: Problem, workers: int) -> None:
    np.testing.assert_allclose(problem.gradient(problem.optimum), 0, atol=1e-15)
    for direction in seeding.generator(0, 0, "point").standard_normal((20, len(problem.start))):
        assert problem.value(problem.optimum) <= problem.value(problem.optimum + 0.01 * direction)


@each_problem
def test_nothing_changes_x_and_chance_comes_from_the_generator_alone(problem: Problem, workers: int) -> None:
    x = problem.start
    problem.gradient(x)[:] = np.nan
    first, second = (problem.stochastic_gradient(x, seeding.generator(0, 0, "noise")) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    first[:] = np.nan
    np.testing.assert_array_equal(x, problem.start)


# ---- paper 1's toy ----

Attack = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def invert(gradients: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return -gradients


def randomise(gradients: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return generator.standard_normal(gradients.shape)


def vote(gradients: np.ndarray, x: np.ndarray, step: float) -> np.ndarray:
    """One step of the specification's vote, float64: the sign of a tie is 0."""
    negative, tied = reference.majority(reference.negatives(gradients), "abstain")
    return reference.descend(x, negative, step, 1.0, tied)


def descend_by_vote(
    problem: Problem, workers: int, steps: int, step: float = 0.01, attack: Attack = invert, attackers: int = 0
) -> list[np.ndarray]:
    """The points x_0 … x_steps."""
    generator, points = seeding.generator(0, 0, "noise"), [problem.start]
    for _ in range(steps):
        gradients = np.stack([problem.stochastic_gradient(points[-1], generator, m) for m in range(workers)])
        gradients[:attackers] = attack(gradients[:attackers], generator)
        points.append(vote(gradients, points[-1], step))
    return points


def assert_toy(points: list[np.ndarray], bands: dict[int, float]) -> None:
    """f after so many steps, within 25 %: a sum of 1000 coordinates varies by √(2/1000) = 4.5 % from run to run already
    at the start, and up to 8 % where steps make the coordinates' tails heavy; 25 % is three times that.
    """
    for step, expected in bands.items():
        assert NoisyQuadratic().value(points[step]) == pytest.approx(expected, rel=0.25), step


@pytest.mark.parametrize(
    "workers, bands",
    [
        (1, {0: 478.2, 100: 140.3, 500: 3.53, 1000: 2.94}),
        (3, {100: 105.1, 500: 2.07, 1000: 1.92}),
        (9, {100: 83.1, 500: 1.31, 1000: 1.33}),
        (27, {100: 74.8, 500: 0.80}),
    ],
)
def test_more_workers_bring_the_toy_lower(workers: int, bands: dict[int, float]) -> None:
    assert_toy(descend_by_vote(NoisyQuadratic(), workers, max(bands)), bands)


@pytest.mark.parametrize(
    "inverting, bands",
    [(3, {100: 77.4, 500: 0.94}), (9, {100: 104.1, 500: 2.34}), (12, {100: 207, 500: 15.4}), (13, {100: 329.7, 500: 111.9})],
)  # fmt: skip
def test_fewer_than_half_inverting_slow_the_toy_down(inverting: int, bands: dict[int, float]) -> None:
    assert_toy(descend_by_vote(NoisyQuadratic(), 27, 500, attackers=inverting), bands)


def test_14_of_27_inverting_drive_the_toy_away() -> None:
    assert_toy(descend_by_vote(NoisyQuadratic(), 27, 500, attackers=14), {100: 774.7, 500: 4984})


@pytest.mark.parametrize("randomising, bands", [(13, {100: 87.7, 500: 1.50}), (26, {100: 403, 500: 199})])
def test_the_toy_descends_even_with_26_of_27_randomising(randomising: int, bands: dict[int, float]) -> None:
    assert_toy(descend_by_vote(NoisyQuadratic(), 27, 500, attack=randomise, attackers=randomising), bands)


def test_sparse_noise_hurts_sgd_and_not_signsgd() -> None:
    finals = {"sgd": 0.0, "sign": 0.0}
    for seed in range(5):
        problem, generator = sparse_noise(seed), seeding.generator(seed, 0, "noise")
        sgd = sign = problem.start
        for step in range(3000):
            sgd = sgd - 1e-3 * problem.stochastic_gradient(sgd, generator)
            sign = sign - 1e-2 * np.sign(problem.stochastic_gradient(sign, generator))
            if step >= 2000:
                finals["sgd"] += problem.value(sgd) / 5000
                finals["sign"] += problem.value(sign) / 5000
    # SGD's floor is ησ²/4 = 2.5, from coordinate 0 alone; signSGD's coordinate 0 hardly leaves its start, ½·x² = ½
    assert finals["sgd"] > 1.5 > finals["sign"]


# ---- bounds of both papers on a run ----


def gaussian_rho(x: np.ndarray) -> np.ndarray:
    return stats.norm.cdf(np.abs(x))


def test_small_batches_keep_theorem_1_of_paper_1() -> None:
    problem, steps = NoisyQuadratic(numel=100), 2000
    gap = problem.value(problem.start)
    step = theory.best_step(gap, problem.smoothness, steps)
    points = descend_by_vote(problem, 1, steps, step)
    norms = [theory.mixed_norm(x, np.ones(100)) for x in points[:-1]]
    bound = theory.small_batch_bound(gap, problem.smoothness, steps)
    assert np.mean(norms) <= bound * np.sqrt(3) / 2  # (3/2)√3 in place of 3, as derived


@pytest.mark.parametrize("inverting", [0, 1, 3])
def test_large_batches_keep_theorem_2_of_paper_1_with_adversaries(inverting: int) -> None:
    steps = 400
    problem = NoisyQuadratic(numel=100, noise=1 / np.sqrt(steps))  # a batch of K = steps samples of unit noise
    gap = problem.value(problem.start)
    points = descend_by_vote(
        problem, 7, steps, theory.best_step(gap, problem.smoothness, steps), attackers=inverting
    )  # fmt: skip
    norms = [np.abs(x).sum() for x in points[:-1]]
    assert np.mean(norms) <= theory.large_batch_bound(gap, problem.smoothness, np.ones(100), steps, 7, inverting)


def test_a_constant_step_ends_on_the_floor_of_half_gamma_d_l() -> None:
    problem = NoisyQuadratic()
    points = descend_by_vote(problem, 1, 2000)
    norms = [theory.rho_norm(gaussian_rho(x), x) for x in points[:-1]]
    floor = theory.constant_step_bound(0, problem.smoothness, 0.01, 1)
    assert floor == pytest.approx(5)
    # once f no longer falls, the mean descent γ‖∇f‖_ρ pays for γ²dL̄/2 exactly; a mean over 1000 steps varies by
    # ‖x‖/√1000 = .08, or 1.5 %: 6 % is four times that
    assert np.mean(norms[1000:]) == pytest.approx(floor, rel=0.06)
    gap = problem.value(problem.start)
    assert np.mean(norms) <= theory.constant_step_bound(gap, problem.smoothness, 0.01, 2000) * 1.03


@pytest.mark.parametrize("workers", [1, 3])
def test_decaying_steps_keep_the_rate_of_paper_3(workers: int) -> None:
    problem, steps, step = NoisyQuadratic(numel=65), 3000, 0.3
    x, generator, norms = problem.start, seeding.generator(0, 0, "noise"), []
    for k in range(steps):
        norms.append(theory.rho_norm(theory.vote_success(gaussian_rho(x), workers), x))
        gradients = np.stack([problem.stochastic_gradient(x, generator) for _ in range(workers)])
        x = vote(gradients, x, step / np.sqrt(k + 1))
    gap = problem.value(problem.start)
    for count in (10, 100, 1000, 3000):
        assert min(norms[:count]) <= theory.decaying_step_bound(gap, problem.smoothness, step, count)
    # the floor of the step size, γ_k·d/2, falls as 1/√k: from 300 to 3000 by √10, within 25 % for 65 coordinates' noise
    early, late = np.mean(norms[250:350]), np.mean(norms[2800:3000])
    assert early / late == pytest.approx(np.sqrt(2900 / 300), rel=0.25)


@pytest.mark.parametrize("problem", [NoisyQuadratic(numel=65), Rosenbrock(), TwoVectors()], ids=repr)
def test_option_2_never_increases_f(problem: Problem) -> None:
    x, generator = problem.start, seeding.generator(0, 0, "noise")
    values = [problem.value(x)]
    for k in range(500):
        tried = x - 0.05 / np.sqrt(k + 1) * np.sign(problem.stochastic_gradient(x, generator))
        if problem.value(tried) <= values[-1]:
            x = tried
        values.append(problem.value(x))
    assert (np.diff(values) <= 0).all()
    assert values[-1] < values[0]


# ---- where signs fail ----


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("distributed", [False, True])
def test_signsgd_never_leaves_the_line_of_its_start(epsilon: float, distributed: bool) -> None:
    problem = TwoVectors(epsilon, distributed)
    x, generator = problem.start, seeding.generator(0, 0, "noise")
    for k in range(5000):
        gradients = [problem.stochastic_gradient(x, generator, worker) for worker in range(1 + distributed)]
        x = x - 0.1 / np.sqrt(k + 1) * np.sign(np.sum(np.sign(gradients), axis=0))
        assert x.sum() == pytest.approx(2, abs=1e-12)  # 10⁴ sums of numbers near 2, each rounded to 2e-16
    assert problem.value(x) > problem.value(problem.optimum) + epsilon**2  # on the line f >= 4ε²


@pytest.mark.parametrize("tie, expected", [("abstain", 1.0), ("plus", -9.0)])
def test_ties_freeze_the_counter_example_or_push_it_past_the_optimum_for_ever(tie: str, expected: float) -> None:
    problem, generator = TwoVectors(0.5, distributed=True), seeding.generator(0, 0, "noise")
    x = np.ones(2)  # where x1 = x2, the workers' signs cancel at every step
    for _ in range(1000):
        gradients = np.stack([problem.stochastic_gradient(x, generator, worker) for worker in range(2)])
        negative, tied = reference.majority(reference.negatives(gradients), tie)
        x = reference.descend(x, negative, 0.01, 1.0, tied if tie == "abstain" else None)
    assert x == pytest.approx([expected, expected], abs=1e-6)  # 1000 steps of float32(0.01)


@pytest.mark.parametrize("t", [-0.4, 0.1, 0.4])
def test_signs_are_coins_on_the_cone_of_the_counter_example(t: float) -> None:
    problem, x = TwoVectors(0.5), np.array([1 + t, 1 - t])
    assert np.prod(problem.vectors @ x) > 0
    both = [
        TwoVectors(0.5, distributed=True).stochastic_gradient(x, seeding.generator(0, 0, "noise"), i) for i in (0, 1)
    ]
    rho = np.mean(np.sign(both) == np.sign(problem.gradient(x)), axis=0)
    assert (rho <= 0.5).all()


def test_rosenbrock_signs_are_mostly_right_only_in_batches() -> None:
    shares = [float(measured_rho(Rosenbrock(batch=batch)).mean()) for batch in (1, 8, 64)]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < shares[-1]  # one summand of nine leaves most coordinates at exactly 0


def measured_rho(problem: Problem) -> np.ndarray:
    x, generator = problem.start, seeding.generator(0, 0, "noise")
    return theory.success_probabilities(
        lambda: problem.stochastic_gradient(x, generator), problem.gradient(x), 1000
    ).rho


def test_a_vote_goes_to_the_median_of_heterogeneous_workers_not_to_their_mean() -> None:
    problem = HeterogeneousQuadratics(((0.0,), (0.25,), (5.0,)))
    x = descend_by_vote(problem, 3, 500, step=0.005)[-1]
    assert x == pytest.approx(0.25, abs=0.005 + 1e-6)  # one step; steps are rounded to float32
    assert problem.optimum == pytest.approx(1.75)


def test_the_documented_centers_have_the_documented_optima() -> None:
    problem = HeterogeneousQuadratics()
    assert problem.optimum == pytest.approx([1, 0.0333], abs=5e-5)
    assert geometric_median(problem.centers) == pytest.approx([0.0288, 0.0481], abs=5e-5)


def test_unit_vectors_to_the_geometric_median_cancel() -> None:
    points = seeding.generator(0, 0, "points").standard_normal((7, 3))
    away = points - geometric_median(points)
    np.testing.assert_allclose((away / np.linalg.norm(away, axis=1)[:, None]).sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize(
    "points, median",
    [
        ([[3.0, 4.0]], [3, 4]),
        ([[1.0, 1.0]] * 4, [1, 1]),
        ([[0.0], [1.0], [5.0]], [1]),
        ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 0]),
        ([[0.0, 0.0], [3.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], [-1, 0]),  # begins on a point, not the median
    ],
)
def test_the_geometric_median_may_be_one_of_the_points(points: list[list[float]], median: list[float]) -> None:
    assert geometric_median(points) == pytest.approx(np.array(median), abs=1e-9)


WRONG = [
    lambda: TwoVectors(0.0),
    lambda: TwoVectors(1.0),
    lambda: Rosenbrock(numel=1),
    lambda: Rosenbrock(batch=0),
    lambda: HeterogeneousQuadratics(()),
    lambda: HeterogeneousQuadratics((1.0, 2.0)),
    lambda: HeterogeneousQuadratics(((1.0,), (1.0, 2.0))),
    lambda: HeterogeneousQuadratics().stochastic_gradient(np.zeros(2), seeding.generator(0, 0, "noise"), 3),
    lambda: TwoVectors(distributed=True).stochastic_gradient(np.zeros(2), seeding.generator(0, 0, "noise"), 2),
    lambda: geometric_median([]),
    lambda: geometric_median([1.0, 2.0]),
]


@pytest.mark.parametrize("call", WRONG)
def test_wrong_input_is_refused(call) -> None:
    with pytest.raises(ValueError):
        call()
