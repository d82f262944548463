import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def bowl(x):
    return float(x @ x)


def test_each_path_is_drawn_whole_and_named():
    first, second = [[2, 0], [1, 1], [0, 0]], [[2, 0], [0, 1]]
    ax = plotting.landscape(bowl, {"votes": first, "means": second})
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines if line.get_label()[0] != "_"}
    assert drawn == {"votes": first, "means": second}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["votes", "means"]


def test_the_map_reaches_beyond_all_that_is_on_it():
    ax = plotting.landscape(bowl, {"votes": [[2, 0], [1, 1]]}, points={"far": (-2, 0)})
    assert ax.get_xlim() == (-2.5, 2.5)
    assert ax.get_ylim() == (-2, 3)
    assert "far" in [text.get_text() for text in ax.texts]


def test_arrows_point_along_the_field_and_crosses_stand_where_it_is_zero():
    ax = plotting.landscape(bowl, {"p": [[-1, -1], [1, 1]]}, field=lambda x: [max(x[0], 0.0), 0.0])
    (arrows,) = [each for each in ax.collections if hasattr(each, "U")]
    crosses = next(line.get_xydata() for line in ax.lines if line.get_marker() == "x")
    assert len(crosses) + len(arrows.U) == 121
    assert (crosses[:, 0] <= 0).all()
    assert len(set(np.round(arrows.U, 9))) == 1  # all of one length
    assert not arrows.V.any()


def test_a_single_place_is_map_enough():
    assert plotting.landscape(bowl, {}, points={"here": (1.0, 1.0)}).get_legend() is None


def test_it_draws_into_the_axes_it_is_given():
    ax = pyplot.subplots()[1]
    assert plotting.landscape(bowl, {"p": [[0, 0], [1, 0]]}, ax) is ax


@pytest.mark.parametrize(
    ("paths", "points", "message"),
    [
        ({"p": [0.0, 1.0]}, {}, "path 'p' has shape"),
        ({"p": np.zeros((0, 2))}, {}, "path 'p' has shape"),
        ({}, {"q": (1.0, 2.0, 3.0)}, "point 'q' has shape"),
        ({}, {}, "no paths and no points"),
    ],
)
def test_what_cannot_be_drawn_is_refused(paths, points, message):
    with pytest.raises(ValueError, match=message):
        plotting.landscape(bowl, paths, points=points)
