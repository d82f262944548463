"""The dip against its definition, its limits, and what it is there to tell apart."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from mpisign import seeding
from mpisign.dip import dip, largest_usual_dip


def dip_by_definition(samples: np.ndarray) -> float:
    """The least d over all modes: a linear programme in the values of G at the samples, and twice at the mode."""
    x, counts = np.unique(samples, return_counts=True)
    above = np.cumsum(counts) / len(samples)
    below = above - counts / len(samples)
    return min(distance(x, below, above, mode) for mode in range(len(x)))


def distance(x: np.ndarray, below: np.ndarray, above: np.ndarray, mode: int) -> float:
    """The least d for a G that is convex up to x[mode], may jump there, and is concave from there on."""
    n = len(x)
    places = np.insert(x, mode, x[mode])  # G just left of the mode, and at it
    rows, limits = [], []

    def require(coefficients: dict[int, float], limit: float) -> None:
        row = np.zeros(n + 2)
        for index, value in coefficients.items():
            row[index] = value
        rows.append(row)
        limits.append(limit)

    d = n + 1
    for i in range(n + 1):
        sample = i if i <= mode else i - 1
        if i != mode:  # G(x) is not d below F there
            require({i: -1, d: -1}, -above[sample])
        if i != mode + 1:  # nor d above its left limit
            require({i: 1, d: -1}, below[sample])
    for i in range(n):
        require({i: 1, i + 1: -1}, 0)  # it never falls
    for i in range(1, n):
        left, right = places[i] - places[i - 1], places[i + 1] - places[i]
        if i < mode or i > mode + 1:
            bend = {i - 1: -right, i: left + right, i + 1: -left}  # its slope rises up to the mode, then falls
            require(bend if i < mode else {k: -v for k, v in bend.items()}, 0)
    bounds = [(0, 1)] * (n + 1) + [(0, None)]
    solved = linprog(np.eye(n + 2)[d], np.array(rows), limits, bounds=bounds)
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 12, 20])
@pytest.mark.parametrize("kind", ["normal", "two heaps", "ties"])
def test_the_dip_is_that_of_its_definition(n: int, kind: str) -> None:
    random = seeding.generator(0, n, kind)
    for _ in range(3):
        x = random.standard_normal(n)
        if kind == "two heaps":
            x += 5 * random.integers(2, size=n)
        elif kind == "ties":
            x = np.round(x)
        assert dip(x) == pytest.approx(dip_by_definition(x), abs=1e-9)  # what the solver of the programme allows


def test_it_lies_between_half_a_sample_and_a_quarter() -> None:
    assert dip(np.arange(100)) == pytest.approx(1 / 200)
    assert dip(np.repeat([0.0, 1.0], 50)) == pytest.approx(0.25)
    assert dip([3.0] * 10) == dip([3.0]) == 0


def test_it_does_not_depend_on_order_place_scale_and_sign() -> None:
    x = seeding.generator(0, 0, "samples").standard_normal(101)
    for same in (x[::-1], -x, 3 * x + 7, x.reshape(101, 1)):
        assert dip(same) == pytest.approx(dip(x), rel=1e-9)  # the sums of other numbers round otherwise


@pytest.mark.parametrize("noise", [stats.norm(), stats.laplace(), stats.expon()])
def test_noise_with_one_mode_dips_as_usual_and_skewed_noise_too(noise: stats.rv_continuous) -> None:
    x = noise.rvs(size=(20, 200), random_state=seeding.generator(0, 0, "noise"))
    usual = largest_usual_dip(200, draws=300)
    assert sum(dip(row) > usual for row in x) <= 1  # uniform noise: 1 of 20 on average; these dip less


def test_two_heaps_dip_more_than_noise_with_one_mode() -> None:
    random = seeding.generator(0, 0, "noise")
    heaps = random.standard_normal(200) + 8 * (random.random(200) < 0.3)
    assert dip(heaps) > 2 * largest_usual_dip(200, draws=300)


def test_usual_dips_fall_as_one_over_the_root_of_n() -> None:
    usual = [largest_usual_dip(n, draws=300) * np.sqrt(n) for n in (50, 200, 500)]
    np.testing.assert_allclose(usual, 0.51, rtol=0.08)  # .50 to .525; 300 draws give ± 2 %
    assert largest_usual_dip(200, share=0.5, draws=300) < largest_usual_dip(200, draws=300)


def test_usual_dips_of_many_samples_are_scaled_from_those_of_500() -> None:
    random = seeding.generator(0, 0, "uniform numbers")
    simulated = np.quantile([dip(random.random(1000)) for _ in range(150)], 0.95)
    assert largest_usual_dip(1000) == pytest.approx(simulated, rel=0.1)  # 150 draws give ± 3 %


@pytest.mark.parametrize("samples", [[], [0.0, np.nan], [np.inf]])
def test_what_has_no_dip_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        dip(samples)


@pytest.mark.parametrize("arguments", [(0,), (10, 1.0), (10, 0.5, 0)])
def test_wrong_input_is_refused(arguments: tuple) -> None:
    with pytest.raises(ValueError, match="wanted share"):
        largest_usual_dip(*arguments)
