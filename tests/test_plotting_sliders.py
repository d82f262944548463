import base64
import html
import json
import re
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


def counted(drawn):
    """Draws a picture of so many bars, and notes it."""
    from matplotlib import pyplot

    def draw(liars):
        drawn.append(liars)
        pyplot.figure(figsize=(1, 1))
        pyplot.bar(range(liars), 1)

    return draw


def pictures(text):
    return json.loads(html.unescape(re.search(r'data-pictures="([^"]*)"', text).group(1)))


def test_a_notebook_with_nobody_there_stores_a_picture_for_each_position(monkeypatch):
    drawn, shown = [], []
    monkeypatch.setattr(sliders, "_kernel", lambda: SimpleNamespace(_allow_stdin=False))
    monkeypatch.setattr(sliders, "_show", shown.append)
    plotting.slider(counted(drawn), "liars", range(1, 4), 2)
    assert drawn == [1, 2, 3]
    (bundle,) = shown
    assert sorted(bundle) == ["image/png", "text/html", "text/plain"]
    titles, pngs = zip(*pictures(bundle["text/html"]), strict=True)
    assert titles == ("liars = 1", "liars = 2", "liars = 3")
    assert len(set(pngs)) == 3
    assert all(base64.b64decode(png).startswith(b"\x89PNG") for png in pngs)
    assert bundle["image/png"] == pngs[1]
    assert f'src="data:image/png;base64,{pngs[1]}"' in bundle["text/html"]  # seen where no script runs
    assert bundle["text/plain"] == "liars = 2"


def test_a_stored_slider_is_the_same_each_time_and_leaves_no_figure_open():
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    first, second = (sliders.stored(counted([]), "liars", range(3), 0) for _ in range(2))
    assert first == second
    assert pyplot.get_fignums() == before


def test_a_stored_slider_needs_nothing_from_elsewhere_and_values_are_no_markup():
    text = sliders.stored(lambda liars: counted([])(1), "liars", ["<b>", "'\""], "<b>")["text/html"]
    assert [title for title, _ in pictures(text)] == ["liars = <b>", "liars = '\""]
    assert "<b>" not in text
    assert not re.search(r"https?:|<script|<link", text)
