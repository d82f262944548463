import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting

VOTE = {"steps": [0, 1, 2], "bytes": [0, 10, 20], "accuracy": [0.1, 0.5, 0.9]}
MEAN = {"steps": [0, 1, 2], "bytes": [0, 320, 640], "accuracy": [0.1, 0.6, 0.9]}


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def points(line):
    return line.get_xydata().tolist()


def test_a_run_is_drawn_as_it_is_against_each_cost_in_a_panel_of_its_own():
    steps, costs = plotting.curves({"vote": VOTE}, "accuracy", ["steps", "bytes"])
    assert points(steps.lines[0]) == [[0, 0.1], [1, 0.5], [2, 0.9]]
    assert points(costs.lines[0]) == [[0, 0.1], [10, 0.5], [20, 0.9]]
    assert (steps.get_ylabel(), steps.get_xlabel(), costs.get_xlabel()) == ("accuracy", "steps", "bytes")


def test_costs_32_times_as_high_are_drawn_on_a_logarithmic_axis_without_the_0():
    steps, costs = plotting.curves({"vote": VOTE, "mean": MEAN}, "accuracy", ["steps", "bytes"])
    assert (steps.get_xscale(), costs.get_xscale()) == ("linear", "log")
    assert points(costs.lines[1]) == [[320, 0.6], [640, 0.9]]


def test_runs_differ_in_colour_and_in_line_and_are_named():
    (ax,) = plotting.curves({"vote": VOTE, "mean": MEAN}, "accuracy")
    assert len({line.get_color() for line in ax.lines}) == len({line.get_linestyle() for line in ax.lines}) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["vote", "mean"]


def test_bytes_are_short_to_read():
    (ax,) = plotting.curves({"mean": {**MEAN, "bytes": [0, 1_500_000, 3_000_000]}}, "accuracy", ["bytes"])
    ax.figure.canvas.draw()
    assert "1.5 M" in [tick.get_text() for tick in ax.get_xticklabels()]


def test_a_run_without_a_point_can_be_drawn():
    (ax,) = plotting.curves({"empty": {"steps": [], "accuracy": []}}, "accuracy")
    ax.figure.canvas.draw()


def test_curves_go_where_they_are_told():
    ax = pyplot.subplots()[1]
    assert plotting.curves({"vote": VOTE}, "accuracy", axes=[ax]) == [ax]


@pytest.mark.parametrize("run", [{"steps": [1]}, {"steps": [1], "accuracy": [1, 2]}])
def test_a_run_that_lacks_a_column_or_a_value_is_refused(run):
    with pytest.raises(ValueError, match=r"run vote has columns .*: wanted accuracy, steps, of equal length"):
        plotting.curves({"vote": run}, "accuracy")
