"""Where the time of runs went: a bar for each run, cut into its phases."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .axes import new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TINTS = ("#7B5FA8", "#B9A6D3", "#2A788E", "#22A884", "#8FD744", "#F5D90A")
"""None of COLORS, which stand for runs; told apart by their lightness too."""
_REST = "#AAAAAA"


def phases(runs: Mapping[str, Mapping[str, float]], ax: "Axes | None" = None) -> "Axes":
    """Draw a bar for each run, the first on top: the seconds of each phase, one after the other.

    Args:
        runs: for each name the seconds, at least 0, of each phase; `other`, which is grey, should come last.
        ax: where to draw; a new figure by default.

    Errors: ValueError where there is no run, or seconds are below 0 or no number.
    """
    for name, seconds in runs.items():
        if not all(value >= 0 for value in seconds.values()):
            raise ValueError(f"run {name} has seconds {dict(seconds)}: wanted none below 0")
    if not runs:
        raise ValueError("no runs: wanted one or more")
    ax = ax or new_axes(6.4, 1.4 + 0.4 * len(runs))
    ends = dict.fromkeys(runs, 0.0)
    for number, phase in enumerate(dict.fromkeys(phase for seconds in runs.values() for phase in seconds)):
        widths = [seconds.get(phase, 0.0) for seconds in runs.values()]
        tint = _REST if phase == "other" else _TINTS[number % len(_TINTS)]
        places = range(len(runs))
        ax.barh(places, widths, 0.7, list(ends.values()), color=tint, edgecolor="white", linewidth=0.7, label=phase)
        ends = {name: end + width for (name, end), width in zip(ends.items(), widths, strict=True)}
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set_ylim(len(runs) - 0.5, -0.5)
    with_corner(ax, "seconds", "")
    ax.legend(frameon=False, fontsize=10, ncols=4, loc="lower right", bbox_to_anchor=(1, 1))
    return ax
