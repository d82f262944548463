"""Every number of the papers' theory that can be computed, against the functions of mpisign.theory."""

import numpy as np
import pytest
from scipy import stats

from mpisign import seeding, theory

GAUSS, LAPLACE = stats.norm(), stats.laplace(scale=np.sqrt(0.5))  # both of standard deviation 1

LEMMA1 = [  # S; P(wrong sign) under Gaussian and Laplace noise, and the bound, as printed
    (0.2, 0.42074, 0.37682, 0.44226),
    (0.5, 0.30854, 0.24653, 0.35566),
    (1.0, 0.15866, 0.12156, 0.21132),
    (2 / np.sqrt(3), 0.12411, 0.09767, 0.16667),
    (2.0, 0.02275, 0.02955, 0.05556),
    (3.0, 0.00135, 0.00718, 0.02469),
]
PRINTED = 5e-6  # half a unit of the last digit printed

VOTES = [  # ρ; 2I − 1 for 1, 3, 5, 7 and 15 workers
    (0.55, [0.1000, 0.1495, 0.1863, 0.2166, 0.3070]),
    (0.7, [0.4, 0.568, 0.6738, 0.7479, 0.9000]),
]
SNRS = np.geomspace(0.01, 10, 200)


@pytest.mark.parametrize("snr, gauss, laplace, bound", LEMMA1)
def test_lemma_1_has_the_values_of_the_table(snr: float, gauss: float, laplace: float, bound: float) -> None:
    assert GAUSS.cdf(-snr) == pytest.approx(gauss, abs=PRINTED)
    assert LAPLACE.cdf(-snr) == pytest.approx(laplace, abs=PRINTED)
    assert theory.lemma1_bound(snr) == pytest.approx(bound, abs=PRINTED)


def test_the_critical_snr_is_where_the_branches_of_lemma_1_meet() -> None:
    assert pytest.approx(1.1547, abs=5e-5) == theory.CRITICAL_SNR
    below, at, above = theory.lemma1_bound(theory.CRITICAL_SNR * np.array([1 - 1e-9, 1, 1 + 1e-9]))
    assert below == pytest.approx(at, abs=1e-8)  # a slope below 1 times the distance of 1e-9
    assert above == pytest.approx(at, abs=1e-8)


@pytest.mark.parametrize("noise", [GAUSS, LAPLACE, stats.uniform(-np.sqrt(3), 2 * np.sqrt(3))])
def test_no_unimodal_symmetric_noise_fails_more_often_than_lemma_1_and_l1_allow(noise: stats.rv_continuous) -> None:
    assert noise.std() == pytest.approx(1)
    failure = noise.cdf(-SNRS)
    assert (failure <= theory.lemma1_bound(SNRS) + 1e-15).all()  # rounding, where uniform noise attains the bound
    assert (failure <= theory.l1_failure_bound(SNRS, 1) + 1e-15).all()
    assert (theory.lemma1_bound(SNRS) < 0.5).all()


def test_uniform_noise_attains_lemma_1_below_the_critical_snr() -> None:
    low = SNRS[SNRS <= theory.CRITICAL_SNR]
    failure = stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).cdf(-low)
    np.testing.assert_allclose(failure, theory.lemma1_bound(low), rtol=1e-12)


@pytest.mark.parametrize("snr", [0.1, 0.5, 0.8, 1.0, 2.0, 3.0])
def test_two_point_noise_attains_cantelli(snr: float) -> None:
    bound = float(theory.cantelli_bound(snr))
    values, weights = np.array([-snr, 1 / snr]), np.array([bound, 1 - bound])
    assert weights @ values == pytest.approx(0, abs=1e-15)
    assert weights @ values**2 == pytest.approx(1)
    wrong = np.sign(snr + values) != 1  # the sample is exactly 0, whose sign is not that of g
    assert weights @ wrong == bound


def test_small_batches_ascend_under_two_point_noise() -> None:
    # f = x: the gradient is 1; −1 with probability .6, 4 with .4, so S = .408 and Cantelli allows .857
    values, weights = np.array([-1.0, 4.0]), np.array([0.6, 0.4])
    std = np.sqrt(weights @ values**2 - 1)
    assert weights @ values == pytest.approx(1)
    assert theory.cantelli_bound(1 / std) >= 0.6 > theory.lemma1_bound(1 / std)
    draws = seeding.generator(0, 0, "noise").choice(values, size=1000, p=weights)
    f = -np.cumsum(np.sign(draws))
    assert f[-1] > 100  # 200 ± 31 expected: 1000 steps up by .2 on average


@pytest.mark.parametrize("snr, l1, lemma1", [(0.5, 0.388, 0.356), (1, 0.317, 0.211), (2, 0.232, 0.056)])
def test_l1_is_weaker_than_lemma_1_by_the_printed_values(snr: float, l1: float, lemma1: float) -> None:
    assert theory.l1_failure_bound(snr, 1) == pytest.approx(l1, abs=5e-4)
    assert theory.lemma1_bound(snr) == pytest.approx(lemma1, abs=5e-4)
    assert theory.l1_failure_bound(snr, 1) + theory.success_bound(snr, 1) == 1


def test_bounds_depend_on_g_and_sigma_only_by_their_ratio() -> None:
    np.testing.assert_allclose(theory.success_bound(-3 * SNRS, 3), theory.success_bound(SNRS, 1), rtol=1e-14)


def test_without_signal_success_is_a_coin_and_without_noise_certain() -> None:
    np.testing.assert_array_equal(theory.success_bound([0, 0, 2], [0, 1, 0]), [0.5, 0.5, 1])
    assert theory.lemma1_bound(np.inf) == theory.cantelli_bound(np.inf) == 0
    assert theory.lemma1_bound(0) == 0.5


@pytest.mark.parametrize("ratio", [0.5, 2.0, 6.0])
def test_batches_above_l2_bound_the_failure_of_gaussian_and_two_point_noise(ratio: float) -> None:
    batches = range(int(2 * ratio) + 1, int(2 * ratio) + 30)
    for batch in batches:
        bound = theory.batch_success_bound(ratio, batch)
        assert bound > 0.5
        assert GAUSS.cdf(np.sqrt(batch / ratio)) >= bound  # g = 1, σ² = ratio
        assert two_point_success(0.5, 1 / np.sqrt(ratio), batch) >= bound


def two_point_success(weight: float, g: float, batch: int) -> float:
    """P(the mean of the batch > 0) for noise −√((1−q)/q) with probability q, else √(q/(1−q)): σ = 1."""
    down, up = np.sqrt((1 - weight) / weight), np.sqrt(weight / (1 - weight))
    least = np.ceil(batch * (g + up) / (down + up) - 1e-9) - 1  # a sum of exactly 0 is no success
    return float(stats.binom.cdf(least, batch, weight))


@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("g", [0.05, 0.2, 0.5, 1.0])
def test_batches_above_l3_are_right_more_often_than_not_under_skewed_noise(weight: float, g: float) -> None:
    third = weight * ((1 - weight) / weight) ** 1.5 + (1 - weight) * (weight / (1 - weight)) ** 1.5
    enough = int(theory.sufficient_batch(g, 1, third)) + 1
    for batch in range(enough, enough + 20):
        assert two_point_success(weight, g, batch) > 0.5


def test_l3_asks_for_less_than_chebyshev_where_noise_is_tame() -> None:
    assert theory.sufficient_batch(0.1, 1, 1) == pytest.approx(20)
    assert theory.sufficient_batch(0.1, 1, 1e9) == pytest.approx(200)
    assert theory.sufficient_batch(0, 1, 1) == np.inf


def test_the_rho_norm_lies_between_the_l12_norm_and_the_l1_norm() -> None:
    g = seeding.generator(0, 0, "gradient").standard_normal(1001)
    sigma = seeding.generator(0, 0, "sigma").exponential(size=1001)
    for noise in (GAUSS, LAPLACE):
        norm = theory.rho_norm(noise.cdf(np.abs(g) / sigma), g)
        assert theory.l12_norm(g, sigma) <= norm <= np.abs(g).sum()
    assert theory.rho_norm(theory.success_bound(g, sigma), g) == pytest.approx(theory.l12_norm(g, sigma))


def test_the_l12_norm_is_the_l1_norm_far_out_and_a_squared_l2_norm_near_0() -> None:
    g = np.array([3.0, -4.0, 0.0])
    assert theory.l12_norm(1e9 * g, 1) == pytest.approx(7e9)
    assert theory.l12_norm(1e-9 * g, 1) == pytest.approx(25e-18 / np.sqrt(3))
    assert theory.l12_norm(g, 0) == theory.mixed_norm(g, 0) == 7


def test_the_mixed_norm_changes_branch_at_the_critical_snr() -> None:
    assert theory.mixed_norm([0.5, -3.0], [1.0, 1.0]) == pytest.approx(0.25 + 3)


@pytest.mark.parametrize("rho, printed", VOTES)
def test_votes_have_the_success_of_the_table(rho: float, printed: list[float]) -> None:
    computed = [2 * float(theory.vote_success(rho, workers)) - 1 for workers in (1, 3, 5, 7, 15)]
    assert computed == pytest.approx(printed, abs=5e-5)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8, 15, 16, 64])
def test_the_beta_function_equals_the_convolution(workers: int) -> None:
    rho = np.linspace(0, 1, 21)
    right = 1 - theory.vote_failure(1 - rho, workers)
    wrong = 1 - theory.vote_failure(rho, workers)
    np.testing.assert_allclose(2 * theory.vote_success(rho, workers) - 1, right - wrong, atol=1e-13)  # 64 roundings


@pytest.mark.parametrize("l", [1, 2, 3, 4, 20])
def test_an_even_number_of_workers_is_as_good_as_one_less(l: int) -> None:  # noqa: E741
    rho = np.linspace(0, 1, 21)
    signs = [
        theory.vote_failure(rho, workers) - theory.vote_failure(1 - rho, workers) for workers in (2 * l - 1, 2 * l)
    ]  # E sign, sign(0) = 0
    np.testing.assert_allclose(signs[0], signs[1], atol=1e-14)
    np.testing.assert_array_equal(theory.vote_success(rho, 2 * l), theory.vote_success(rho, 2 * l - 1))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 15, 101])
def test_the_exponential_bound_holds(workers: int) -> None:
    rho = np.linspace(0.5, 1, 101)
    gain = 2 * theory.vote_success(rho, workers) - 1
    assert (theory.exponential_bound(rho, workers) <= gain + 1e-15).all()  # rounding where both are 0
    g = seeding.generator(0, 0, "gradient").standard_normal(101)
    norm = theory.rho_norm(theory.vote_success(rho, workers), g)
    assert theory.exponential_bound(rho.min(), workers) * np.abs(g).sum() <= norm <= np.abs(g).sum()


@pytest.mark.parametrize(
    "workers, snr, inverting, failure, bound",
    [(7, 1, 0, 0.0148, 0.378), (7, 1, 3, 0.3388, 2.65), (27, 0.5, 0, 0.0184, None), (27, 0.5, 11, 0.3432, None)],
)
def test_votes_fail_as_often_as_printed(
    workers: int, snr: float, inverting: int, failure: float, bound: float | None
) -> None:
    assert theory.vote_failure(GAUSS.cdf(-snr), workers, inverting) == pytest.approx(failure, abs=5e-5)
    if bound is not None:
        assert theory.vote_failure_snr_bound(snr, workers, inverting) == pytest.approx(bound, abs=5e-3)


@pytest.mark.parametrize("workers", [7, 15, 27, 101])
def test_no_vote_with_fewer_than_half_inverting_fails_more_often_than_its_bounds(workers: int) -> None:
    snrs = SNRS[::10]
    for wrong in (GAUSS.cdf(-snrs), LAPLACE.cdf(-snrs), theory.lemma1_bound(snrs)):
        for inverting in range((workers + 1) // 2):
            exact = theory.vote_failure(wrong, workers, inverting)
            bound = theory.vote_failure_bound(wrong, workers, inverting)
            assert (exact <= bound).all()
            assert (bound <= theory.vote_failure_snr_bound(snrs, workers, inverting) * (1 + 1e-12)).all()


def test_all_workers_inverting_mirror_the_vote() -> None:
    np.testing.assert_allclose(theory.vote_failure([0.1, 0.4], 7, 7), theory.vote_failure([0.9, 0.6], 7, 0))


def test_one_worker_fails_as_often_as_its_gradient() -> None:
    assert theory.vote_failure(0.3, 1) == pytest.approx(0.3)
    assert theory.vote_failure(0.3, 2) == pytest.approx(1 - 0.7**2)  # wrong or tied
    assert theory.vote_failure(np.empty((0, 3)), 5).shape == (0, 3)


def test_measured_success_is_that_of_gaussian_noise() -> None:
    g = np.array([0.0, 0.1, -0.5, 1.0, -4.0])
    generator = seeding.generator(0, 0, "noise")
    rho, error = theory.success_probabilities(lambda: g + generator.standard_normal(5), g, 4000)
    assert rho[0] == 0  # a sample is never exactly 0
    assert (np.abs(rho - GAUSS.cdf(np.abs(g)))[1:] < 4 * error[1:]).all()  # one in 4000 fails by chance; seed fixed
    assert error[1] == pytest.approx(np.sqrt(0.54 * 0.46 / 4000), rel=0.01)  # the measured ρ stands in for the true one
    assert (error > 0).all()


def test_a_sample_of_zero_or_nan_is_a_failure() -> None:
    rho, _ = theory.success_probabilities(lambda: np.array([0.0, np.nan, 1.0]), np.ones(3), 3)
    np.testing.assert_array_equal(rho, [0, 0, 1])


def test_moments_are_those_of_two_passes_even_far_from_zero() -> None:
    data = 1e8 + seeding.generator(0, 0, "data").standard_normal((1001, 3))
    moments = theory.Moments(3)
    for row in data:
        moments.add(row)
    assert moments.count == 1001
    np.testing.assert_allclose(
        moments.mean, data.mean(axis=0), rtol=1e-14
    )  # 1001 roundings of 1e-16, mostly cancelling
    np.testing.assert_allclose(moments.variance, data.var(axis=0, ddof=1), rtol=1e-6)  # 1e8 leaves 8 digits of 16
    np.testing.assert_array_equal(moments.std, np.sqrt(moments.variance))


def test_signal_to_noise_states_its_zeros() -> None:
    np.testing.assert_array_equal(theory.snr([0, -3, 0, 2], [0, 0, 1, 4]), [0, np.inf, 0, 0.5])
    assert theory.share_above_critical([0, 1.15, 1.16, np.inf]) == 0.5
    assert theory.share_above_critical([]) == 0


FOLDED = [  # φ in closed form
    (stats.uniform(), 1),
    (stats.norm(), 4 * (1 - 2 / np.pi)),
    (stats.laplace(), 2),
]


@pytest.mark.parametrize("noise, folded", FOLDED)
def test_symmetric_unimodal_noise_looks_so(noise: stats.rv_continuous, folded: float) -> None:
    samples = 5 - 3 * noise.rvs(size=(100_000, 2), random_state=seeding.generator(0, 0, "noise"))
    np.testing.assert_allclose(theory.unimodality(samples), folded, rtol=0.02)  # 1/√n = .3 %, times 4 and to spare
    np.testing.assert_allclose(
        theory.asymmetry(samples), 0, atol=4 * 0.87 / np.sqrt(1e5)
    )  # no error is above .87/√n, uniform noise's


def test_two_heaps_and_skewed_noise_are_seen() -> None:
    generator = seeding.generator(0, 0, "noise")
    heaps = generator.standard_normal(10_000) + 6 * (generator.random(10_000) < 0.3)
    assert theory.unimodality(heaps) < 0.7
    two_points = np.where(generator.random(10_000) < 0.1, -9.0, 1.0)
    assert theory.unimodality(two_points) == pytest.approx(0, abs=1e-12)
    assert theory.asymmetry(two_points) == pytest.approx(-1 / 3, abs=0.02)  # mean 0, median 1, std 3, 10⁴ samples
    exponential = generator.exponential(size=10_000)
    assert theory.asymmetry(exponential) == pytest.approx(1 - np.log(2), abs=0.03)  # 10⁴ samples: ± .01
    assert theory.unimodality(exponential) > 1.4


def test_a_coordinate_that_never_varies_has_no_noise_to_judge() -> None:
    samples = np.stack([np.full(10, 0.1), np.arange(10.0)], axis=1)
    for statistic in (theory.asymmetry(samples), theory.unimodality(samples)):
        np.testing.assert_array_equal(np.isnan(statistic), [True, False])


WRONG = [
    lambda: theory.lemma1_bound([1, -0.1]),
    lambda: theory.cantelli_bound(np.nan),
    lambda: theory.success_bound(1, -1),
    lambda: theory.rho_norm([0.5, 1.1], [1, 1]),
    lambda: theory.vote_success(0.5, 0),
    lambda: theory.vote_failure(-0.1, 3),
    lambda: theory.vote_failure(0.1, 3, 4),
    lambda: theory.vote_failure_bound(0.5, 3),
    lambda: theory.vote_failure_bound(0.1, 4, 2),
    lambda: theory.vote_failure_snr_bound(1, 3, 2),
    lambda: theory.batch_success_bound(1, 0),
    lambda: theory.success_probabilities(lambda: np.ones(2), np.ones(3), 1),
    lambda: theory.success_probabilities(lambda: np.ones(3), np.ones(3), 0),
    lambda: theory.Moments(2).add(np.ones(3)),
    lambda: theory.Moments(2).variance,
    lambda: theory.asymmetry(1.0),
    lambda: theory.unimodality(np.ones((1, 3))),
]


@pytest.mark.parametrize("call", WRONG)
def test_wrong_input_is_refused(call) -> None:
    with pytest.raises(ValueError):
        call()
