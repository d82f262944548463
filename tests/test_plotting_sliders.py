from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

from mpisign import plotting
from mpisign.plotting import sliders


@pytest.fixture
def moved(monkeypatch):
    """ipywidgets as far as a slider needs it, with somebody who moves it through all positions."""
    seen = []

    def interact(draw, **knobs):
        for name, knob in knobs.items():
            seen.append(knob)
            for value in knob.options:
                draw(**{name: value})

    widgets = SimpleNamespace(SelectionSlider=lambda **settings: SimpleNamespace(**settings), interact=interact)
    monkeypatch.setattr(sliders, "_widgets", lambda: widgets)
    return seen


def test_without_anybody_there_the_picture_is_drawn_once(moved):
    drawn = []
    plotting.slider(lambda liars: drawn.append(liars), "liars", range(5), 3)
    assert (drawn, moved) == ([3], [])


def test_without_ipywidgets_the_picture_is_drawn_once(monkeypatch):
    monkeypatch.setattr(sliders, "_somebody_is_there", lambda: True)
    monkeypatch.setattr(sliders, "_widgets", lambda: None)
    drawn = []
    plotting.slider(lambda liars: drawn.append(liars), "liars", range(5), 3)
    assert drawn == [3]


def test_a_slider_draws_what_it_is_moved_to(moved, monkeypatch):
    monkeypatch.setattr(sliders, "_somebody_is_there", lambda: True)
    drawn = []
    plotting.slider(lambda liars: drawn.append(liars), "liars", range(5), 3)
    assert drawn == [0, 1, 2, 3, 4]
    assert (moved[0].value, moved[0].description) == (3, "liars")


def test_a_start_that_is_no_position_is_refused():
    with pytest.raises(ValueError, match="start is 9"):
        plotting.slider(lambda liars: None, "liars", range(5), 9)
