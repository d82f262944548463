"""How good runs have become, against what it cost: steps, bytes, seconds, one panel each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .axes import color, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = Mapping[str, Sequence[float]]

LINES = ("-", "--", "-.", ":")  # beside colours: told apart in print, too
_DECADES = 30  # a larger ratio of the largest cost to the smallest is drawn on a logarithmic axis


def curves(
    runs: Mapping[str, Run], y: str, against: Sequence[str] = ("steps",), axes: "Sequence[Axes] | None" = None
) -> "list[Axes]":
    """Draw one quantity of each run against others, in a panel each; the runs share colours and one legend.

    An axis is logarithmic where one run has cost over 30 times as much as another in the end. A cost of 0 has no place
    on such an axis and is left out there.

    Args:
        runs: for each name the columns of its run, of equal length, as in {"Signum": {"steps": …, "accuracy": …}}.
        y: the column to draw, upwards.
        against: the columns to draw it against.
        axes: where to draw, one for each of `against`; a new figure by default.

    Errors: ValueError where a run lacks a column, or its columns' lengths differ.
    """
    for name, run in runs.items():
        lengths = [len(run[column]) if column in run else None for column in (y, *against)]
        if None in lengths or len(set(lengths)) > 1:
            raise ValueError(f"run {name} has columns {sorted(run)}: wanted {y}, {', '.join(against)}, of equal length")
    axes = axes or _panels(len(against))
    for panel, column in zip(axes, against, strict=True):
        _draw_panel(panel, runs, y, column)
    axes[0].set_ylabel(y, fontsize=11)
    if len(runs) > 1:
        axes[0].legend(frameon=False, fontsize=10)
    return list(axes)


def _panels(count: int) -> "list[Axes]":
    from matplotlib import pyplot

    width = 5 if count == 1 else 3.4 * count
    axes = pyplot.subplots(1, count, figsize=(width, 3.4), layout="constrained", sharey=True, squeeze=False)[1]
    return list(axes[0])


def _draw_panel(ax: "Axes", runs: Mapping[str, Run], y: str, column: str) -> None:
    last = [float(run[column][-1]) for run in runs.values() if len(run[column])]
    wide = bool(last) and min(last) > 0 and max(last) / min(last) > _DECADES
    for number, (name, run) in enumerate(runs.items()):
        x, height = np.asarray(run[column], float), np.asarray(run[y], float)
        shown = x > 0 if wide else np.ones(len(x), bool)
        line = LINES[number % len(LINES)]
        ax.plot(x[shown], height[shown], line, color=color(number), linewidth=2, label=name)
    if wide:
        ax.set_xscale("log")
    elif column == "bytes":
        ax.xaxis.set_major_formatter(lambda value, _: _short(value))
    with_corner(ax, column, "")


def _short(value: float) -> str:
    """A number of bytes in three figures."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"
