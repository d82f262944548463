import math

import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting

RUNS = {"a": {"gradient": 1.0, "vote": 0.5, "other": 2.0}, "b": {"gradient": 3.0, "other": 0.25}}


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def test_phases_follow_one_another_in_a_bar_for_each_run():
    ax = plotting.phases(RUNS)
    found = [(bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert found == [(0, 0, 1), (1, 0, 3), (0, 1, 0.5), (1, 3, 0), (0, 1.5, 2), (1, 3, 0.25)]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first run is not on top"


def test_each_phase_has_one_colour_that_stands_for_no_run():
    ax = plotting.phases(RUNS)
    colors = [matplotlib.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.patches]
    assert colors[0::2] == colors[1::2]
    assert len(set(colors)) == 3
    assert not {*colors} & {*plotting.COLORS}


@pytest.mark.parametrize("runs", [{}, {"a": {"vote": -1.0}}, {"a": {"vote": math.nan}}])
def test_what_is_no_time_is_refused(runs):
    with pytest.raises(ValueError, match="wanted"):
        plotting.phases(runs)
