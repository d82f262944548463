"""A knob for a picture, where somebody can turn it; elsewhere the picture at one position."""

from collections.abc import Callable, Sequence
from typing import Any


def slider(draw: Callable[..., Any], name: str, values: Sequence[Any], start: Any) -> None:
    """Show `draw(name=value)` under a slider over the values, or once with `start` where there is no slider.

    A slider needs ipywidgets, and a person: a notebook that is run by a program gets the picture, so that what is stored
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
    if widgets is None:
        draw(**{name: start})
        return
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


def _somebody_is_there() -> bool:
    """Whether the notebook's front end could ask a person something: who runs notebooks by program says that it can't."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    kernel = getattr(get_ipython(), "kernel", None)  # type: ignore[no-untyped-call,unused-ignore]
    return bool(getattr(kernel, "_allow_stdin", False))
