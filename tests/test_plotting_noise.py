"""The pictures of noise show the numbers that they are said to show; that they are good to look at, eyes have judged."""

import io

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from scipy import stats

from mpisign import plotting, seeding, theory
from mpisign.noise import GradientNoise

N, NUMEL = 200, 500


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def gaussian(scale: float = 1.0) -> GradientNoise:
    """Unit noise round 500 gradients from .01 to 3, of which the first is 0 and unused."""
    g = scale * np.geomspace(0.01, 3, NUMEL)
    g[0] = 0
    samples = g + seeding.generator(0, 0, "noise").standard_normal((N, NUMEL))
    samples[:, 0] = 0
    right = np.mean(np.sign(samples) == np.sign(g), axis=0)
    return GradientNoise(N, g, samples.std(axis=0, ddof=1), right, np.arange(NUMEL), samples.astype(np.float32))


def picture(ax) -> bytes:
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    return buffer.getvalue()


def legend(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax, label: str):
    (found,) = [found for found in ax.get_lines() if found.get_label() == label]
    return np.array(found.get_xdata()), np.array(found.get_ydata())


def test_a_histogram_has_the_samples_and_their_normal_distribution() -> None:
    noise = gaussian()
    ax = plotting.histogram(noise, 400, bins=20)
    values, edges, _ = ax.patches[0].get_data()
    np.testing.assert_array_equal(values, noise.histogram(400, 20).density)
    np.testing.assert_array_equal(edges, noise.histogram(400, 20).edges)
    x, y = line(ax, "normal, same mean and σ")
    sample = noise.of(400).astype(np.float64)
    np.testing.assert_allclose(y, stats.norm(sample.mean(), sample.std(ddof=1)).pdf(x), rtol=1e-9)
    assert line(ax, "true gradient")[0].tolist() == [noise.gradient[400]] * 2
    assert legend(ax)[0] == "200 minibatches"
    assert picture(ax)


def test_a_coordinate_without_noise_can_be_drawn() -> None:
    assert picture(plotting.histogram(gaussian(), 0))


def test_the_spread_of_s_counts_each_used_coordinate_once() -> None:
    noise = gaussian()
    ax = plotting.snr({"before": noise, "after": gaussian(0.1)})
    first, second = (patch.get_data()[0] for patch in ax.patches)
    assert first.sum() == second.sum() == pytest.approx(100)
    share = theory.share_above_critical(noise.snr[1:])
    assert 0 < share < 1
    assert legend(ax) == [f"before: {share:.1%} above 2/√3", "after: 0.0% above 2/√3"]
    assert picture(ax)
    assert legend(plotting.snr(noise)) == [f"{share:.1%} above 2/√3"]


def test_coordinates_stand_at_their_s_and_rho_with_lemma_1_below_them() -> None:
    noise = gaussian()
    ax = plotting.success(noise)
    x, y = line(ax, "keeps the bound: 100.0%")
    np.testing.assert_array_equal(x, np.clip(noise.snr[1:], 0.01, 10))
    np.testing.assert_array_equal(y, noise.success[1:])
    x, y = line(ax, "1 − Lemma 1's bound")
    np.testing.assert_allclose(y, 1 - theory.lemma1_bound(x))
    assert len(line(plotting.success(noise, most=10), "keeps the bound: 100.0%")[0]) == 10
    assert picture(ax)


def test_votes_of_7_15_and_27_are_drawn_exactly_and_bounded() -> None:
    ax = plotting.vote_failure(inverting=0.43)
    for size, liars in ((7, 3), (15, 6), (27, 11)):
        x, y = line(ax, f"{size} workers, {liars} inverting")
        np.testing.assert_allclose(y, theory.vote_failure(stats.norm.cdf(-x), size, liars))
    bounds = [found for found in ax.get_lines() if found.get_linestyle() == "--" and len(found.get_xdata())]
    assert len(bounds) == 3
    for bound, (size, liars) in zip(bounds, ((7, 3), (15, 6), (27, 11)), strict=True):
        x, y = bound.get_data()
        np.testing.assert_allclose(y, theory.vote_failure_bound(stats.norm.cdf(-x), size, liars))
        assert y.max() <= 1
    assert picture(ax)
    assert legend(plotting.vote_failure())[:3] == ["7 workers", "15 workers", "27 workers"]


@pytest.mark.parametrize("share", [-0.1, 0.5])
def test_half_of_the_workers_inverting_have_no_bound_to_draw(share: float) -> None:
    with pytest.raises(ValueError, match="needs a majority"):
        plotting.vote_failure(inverting=share)


def test_the_norm_of_more_voters_is_drawn_as_a_share_of_the_l1_norm() -> None:
    noise = gaussian()
    ax = plotting.rho_norms({"before": noise, "after": gaussian(0.1)}, workers=(1, 3, 7))
    x, y = line(ax, "before")
    assert x.tolist() == [1, 3, 7]
    np.testing.assert_allclose(y, [100 * noise.rho_norm(M) / noise.gradient.sum() for M in (1, 3, 7)])
    assert (line(ax, "after")[1] < y).all()
    assert picture(ax)
    assert picture(plotting.rho_norms(noise))


def test_pictures_go_where_they_are_told() -> None:
    noise = gaussian()
    for draw in (plotting.snr, plotting.success, plotting.rho_norms):
        ax = pyplot.subplots()[1]
        assert draw(noise, ax=ax) is ax
    ax = pyplot.subplots()[1]
    assert plotting.histogram(noise, 3, ax) is ax
    assert plotting.vote_failure(ax=ax) is ax
