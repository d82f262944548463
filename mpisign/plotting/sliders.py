"""A knob for a picture: by ipywidgets where somebody sits at a notebook, else with all its pictures inside."""

import base64
import html
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

# No script of its own and no id: what takes away the knob's behaviour leaves the picture at the start.
_TURN = (
    "const p = JSON.parse(this.dataset.pictures)[this.value], b = this.closest('div');"
    "b.querySelector('img').src = 'data:image/png;base64,' + p[1];"
    "b.querySelector('img').alt = b.querySelector('output').textContent = p[0]"
)


def slider(draw: Callable[..., Any], name: str, values: Sequence[Any], start: Any) -> None:
    """Show `draw(name=value)` under a slider over the values, or once with `start` where there is no notebook.

    With ipywidgets and a person at the notebook, it draws when it is moved. A notebook that is run by a program, or without
    ipywidgets, gets the pictures of all values at once, under a slider that needs no Python any more, so that a page made
    of the notebook can be played with; and the one at `start` as a plain picture for who shows no HTML. What is stored
    is the same with ipywidgets and without.

    Args:
        draw: draws a picture; what it returns doesn't matter.
        name: of its argument.
        values: the slider's positions.
        start: one of them.

    Errors: ValueError where `start` is none of the values.
    """
    if start not in values:
        raise ValueError(f"start is {start!r}: wanted one of {list(values)}")
    widgets = _widgets() if _somebody_is_there() else None
    if widgets is not None:
        _live(widgets, draw, name, values, start)
    elif _kernel() is not None:
        _show(stored(draw, name, values, start))
    else:
        draw(**{name: start})


def stored(draw: Callable[..., Any], name: str, values: Sequence[Any], start: Any) -> dict[str, str]:
    """Return a slider as a notebook stores it: HTML with a picture for each value, PNG and text of the one at `start`."""
    pictures = [(f"{name} = {value}", _picture(draw, name, value)) for value in values]
    place = list(values).index(start)
    title, first = pictures[place]
    return {"text/html": _page(name, pictures, place), "image/png": first, "text/plain": title}


def _page(name: str, pictures: Sequence[tuple[str, str]], place: int) -> str:
    title, first = pictures[place]
    said, shown = html.escape(name), html.escape(title)
    return (
        f'<div class="mpisign-slider"><label>{said} <input type="range" min="0" max="{len(pictures) - 1}" value="{place}" '
        f'autocomplete="off" data-pictures="{html.escape(json.dumps(pictures))}" oninput="{_TURN}"></label> '
        f"<output>{shown}</output>\n"
        f'<p><img alt="{shown}" src="data:image/png;base64,{first}"></p>\n'
        f"<noscript>The slider needs scripts: this is {shown}.</noscript></div>"
    )


def _picture(draw: Callable[..., Any], name: str, value: Any) -> str:
    from matplotlib import pyplot

    draw(**{name: value})
    file = io.BytesIO()
    pyplot.savefig(file, format="png", bbox_inches="tight", metadata={"Software": None})
    pyplot.close()
    return base64.b64encode(file.getvalue()).decode()


def _live(widgets: Any, draw: Callable[..., Any], name: str, values: Sequence[Any], start: Any) -> None:
    knob = widgets.SelectionSlider(options=list(values), value=start, description=name, continuous_update=False)

    def draw_only(**argument: Any) -> None:  # what draw returns would be shown as text
        from matplotlib import pyplot

        draw(**argument)
        pyplot.show()

    widgets.interact(draw_only, **{name: knob})


def _widgets() -> Any:
    try:
        import ipywidgets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    return ipywidgets


def _kernel() -> Any:
    """The notebook's kernel, or None where there is no notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return getattr(get_ipython(), "kernel", None)  # type: ignore[no-untyped-call,unused-ignore]


def _somebody_is_there() -> bool:
    """Whether the notebook's front end could ask a person something: who runs notebooks by program says that it can't."""
    return bool(getattr(_kernel(), "_allow_stdin", False))


def _show(bundle: dict[str, str]) -> None:
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call,unused-ignore]
