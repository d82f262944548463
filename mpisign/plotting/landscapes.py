"""A function of two coordinates as a map, and the paths that methods take in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .axes import COLORS, color, new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = npt.NDArray[np.float64]

_LINES, _FINE, _COARSE = 14, 121, 11  # contour lines; points a side, of the map and of the arrows


def landscape(
    value: Callable[[Values], float],
    paths: Mapping[str, npt.ArrayLike],
    ax: "Axes | None" = None,
    *,
    points: Mapping[str, Sequence[float]] | None = None,
    field: Callable[[Values], npt.ArrayLike] | None = None,
) -> "Axes":
    """Draw f as contour lines, and on them paths that begin at a ring and end at a dot, with their names below.

    The map reaches a little beyond all paths and points.

    Args:
        value: f, float64[2] -> float.
        paths: by name, float64[k, 2], k >= 1.
        ax: where to draw; a new figure by default.
        points: places to mark, with their names beside them.
        field: the step at each place, float64[2] -> float64[2], as arrows of one length; a cross where it is 0.

    Errors: ValueError where there is nothing to draw, or a path or point has other shapes.
    """
    lines = {name: np.asarray(path, np.float64) for name, path in paths.items()}
    marks = {name: np.asarray(point, np.float64) for name, point in (points or {}).items()}
    for name, line in lines.items():
        if line.ndim != 2 or line.shape[1] != 2 or not len(line):
            raise ValueError(f"path {name!r} has shape {line.shape}: wanted [k, 2], with k of 1 or more")
    for name, mark in marks.items():
        if mark.shape != (2,):
            raise ValueError(f"point {name!r} has shape {mark.shape}: wanted two numbers")
    if not lines and not marks:
        raise ValueError("no paths and no points: give at least one, so that the map knows how far to reach")
    ax = ax or new_axes(5.6, 5.6)
    x, y = _box(np.concatenate([*lines.values(), *(mark[None] for mark in marks.values())]))
    _draw_map(ax, value, x, y)
    if field is not None:
        _draw_field(ax, field, x, y)
    for number, (name, line) in enumerate(lines.items()):
        width = 2 + 1.2 * (len(lines) - 1 - number)  # so that a later path does not hide an earlier one
        ax.plot(*line.T, "-", color=color(number), linewidth=width, alpha=0.85, label=name)
        ax.plot(*line[0], "o", color="white", markeredgecolor=color(number), markersize=9, markeredgewidth=2, zorder=3)
        ax.plot(*line[-1], "o", color=color(number), markersize=8, zorder=4)
    for number, (name, mark) in enumerate(marks.items()):
        ax.plot(*mark, "*", color=COLORS[6], markersize=13, markeredgecolor="white", zorder=5)
        above = (8, 6) if number % 2 == 0 else (8, -15)  # in turn, so that names of near neighbours stand apart
        place = (float(mark[0]), float(mark[1]))
        ax.annotate(name, place, above, textcoords="offset points", fontsize=10, zorder=6, bbox=_PLATE)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), aspect="equal")
    with_corner(ax, "coordinate 0", "coordinate 1")
    if lines:
        ax.legend(frameon=False, fontsize=10, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=min(len(lines), 2))
    return ax


_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1}


def _box(places: Values) -> tuple[Values, Values]:
    """The coordinates of a square that holds all places, and an eighth more on each side."""
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    half = 0.625 * max(float(np.ptp(places, axis=0).max()), 1e-9)
    return np.linspace(middle[0] - half, middle[0] + half, _FINE), np.linspace(
        middle[1] - half, middle[1] + half, _FINE
    )


def _draw_map(ax: "Axes", value: Callable[[Values], float], x: Values, y: Values) -> None:
    heights = np.array([[value(np.array([a, b])) for a in x] for b in y])
    low, high = float(heights.min()), float(heights.max())
    levels = low + (high - low) * np.linspace(0, 1, _LINES) ** 2  # closer where it is low, as the bottom matters most
    ax.contourf(x, y, heights, np.unique(levels), cmap="Greys", alpha=0.35)
    ax.contour(x, y, heights, np.unique(levels), colors="#999999", linewidths=0.6)


def _draw_field(ax: "Axes", field: Callable[[Values], npt.ArrayLike], x: Values, y: Values) -> None:
    apart = (x[-1] - x[0]) / _COARSE
    places = np.array(
        [[a, b] for a in x[0] + apart * (np.arange(_COARSE) + 0.5) for b in y[0] + apart * (np.arange(_COARSE) + 0.5)]
    )
    steps = np.array([np.asarray(field(place), np.float64) for place in places])
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    still = lengths[:, 0] == 0
    arrows = 0.6 * apart * steps[~still] / lengths[~still]
    ax.quiver(
        *(places[~still] - arrows / 2).T,
        *arrows.T,
        angles="xy",
        scale_units="xy",
        scale=1,
        color="#555555",
        width=0.004,
    )
    ax.plot(*places[still].T, "x", color="#555555", markersize=4)
