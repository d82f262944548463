import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting

LANES = {0: [(0.0, 9.0)], 5: [(0.0, 4.0), (6.0, 9.0)]}


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def test_each_rank_has_a_lane_for_as_long_as_it_takes_part():
    ax = plotting.timeline(LANES)
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines] == [
        ([0, 9], [0, 0]),
        ([0, 4], [1, 1]),
        ([6, 9], [1, 1]),
    ]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "5"]


def test_marks_stand_where_they_befell_and_pauses_are_bands():
    ax = plotting.timeline(LANES, [(4.0, 5, "injected"), (4.0, 5, "lost"), (6.0, 5, "returned")], [(4.0, 5.0)])
    marks = {line.get_label(): line.get_xydata().tolist() for line in ax.lines[3:]}
    assert marks == {"injected": [[4, pytest.approx(0.7)]], "lost": [[4, 1]], "returned": [[6, 1]]}
    assert len({line.get_marker() for line in ax.lines[3:]}) == 3
    (band,) = ax.patches
    assert (band.get_x(), band.get_width()) == (4, 1)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["recovering", "injected", "lost", "returned"]


def test_nobody_and_nothing_can_be_drawn():
    plotting.timeline({}).figure.canvas.draw()


@pytest.mark.parametrize("marks, pauses", [([(1.0, 7, "lost")], []), ([], [(2.0, 1.0)])])
def test_what_can_not_be_is_refused(marks, pauses):
    with pytest.raises(ValueError, match="wanted"):
        plotting.timeline(LANES, marks, pauses)
