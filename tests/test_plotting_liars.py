import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def bars(ax):
    return {round(bar.get_x() + bar.get_width() / 2): bar for bar in ax.patches if bar.get_height()}


def test_each_worker_has_a_bar_as_high_as_its_share():
    drawn = bars(plotting.agreement([0.75, 0.5, 0.25], liars=[2]))
    assert {worker: bar.get_height() for worker, bar in drawn.items()} == {0: 75, 1: 50, 2: 25}


def test_liars_are_told_apart_by_colour_and_by_hatch():
    drawn = bars(plotting.agreement([0.7, 0.7, 0.4], liars=[2]))
    assert drawn[0].get_facecolor() == drawn[1].get_facecolor() != drawn[2].get_facecolor()
    assert [bool(bar.get_hatch()) for bar in drawn.values()] == [False, False, True]


def test_who_is_excluded_or_never_voted_is_named():
    texts = [text.get_text() for text in plotting.agreement([0.7, None, 0.4], excluded=[2]).texts]
    assert texts == ["70", "none", "40\nout"]


def test_it_draws_into_the_axes_it_is_given():
    ax = pyplot.subplots()[1]
    assert plotting.agreement([1.0], ax=ax) is ax


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="share of worker 1 is 70"):
        plotting.agreement([0.7, 70])
    with pytest.raises(ValueError, match="worker 2 is not among 2"):
        plotting.agreement([0.7, 0.7], liars=[2])
    with pytest.raises(ValueError, match="worker 3 is not among 2"):
        plotting.agreement([0.7, 0.7], excluded=[3])
