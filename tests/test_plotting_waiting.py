import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot

from mpisign import plotting


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def test_each_rank_that_waits_has_an_arrow_to_each_that_it_waits_for():
    ax = plotting.waits({0: [1, 2], 1: [0], 2: [0]})
    places = {text.get_text(): text.get_position() for text in ax.texts if text.get_text()}
    names = {place: int(name) for name, place in places.items()}
    arrows = [(text.xyann, text.xy) for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    assert [(names[start], names[end]) for start, end in arrows] == [(0, 1), (0, 2), (1, 0), (2, 0)]


def test_rank_0_is_on_top_and_the_others_follow_clockwise():
    ax = plotting.waits({0: [3]})
    places = np.round([patch.center for patch in ax.patches if hasattr(patch, "center")])
    assert places.tolist() == [[0, 1], [1, 0], [0, -1], [-1, 0]]


def test_nobody_waiting_can_be_drawn():
    plotting.waits({}).figure.canvas.draw()


def test_a_rank_below_0_is_refused():
    with pytest.raises(ValueError, match="numbered from 0 on, got -1"):
        plotting.waits({0: [-1]})
