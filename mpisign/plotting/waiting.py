"""Who waits for whom: a deadlock is a circle of arrows."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .axes import color, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RADIUS = 0.17


def waits(waiting: Mapping[int, Iterable[int]], ax: "Axes | None" = None) -> "Axes":
    """Draw ranks round a circle, rank 0 on top, and an arrow from each that waits to each that it waits for.

    A rank that waits and is waited for by nobody is as stuck as the others; one without an arrow has ended.

    Args:
        waiting: for each rank, those that it waits for, as a `DeadlockError` says; ranks that wait for none may be missing.
        ax: where to draw; a new figure by default.

    Errors: ValueError for a rank below 0.
    """
    arrows = sorted({(rank, other) for rank, others in waiting.items() for other in others})
    ranks = {*waiting, *(other for _, other in arrows)}
    if min(ranks, default=0) < 0:
        raise ValueError(f"ranks are numbered from 0 on, got {min(ranks)}")
    size = max(ranks, default=0) + 1
    ax = ax or new_axes(3.2, 3.2)
    turns = np.pi / 2 - 2 * np.pi * np.arange(size) / size  # clockwise from the top
    places = list(zip(np.cos(turns).tolist(), np.sin(turns).tolist(), strict=True))
    for rank, (x, y) in enumerate(places):
        _draw_rank(ax, rank, x, y)
    for rank, other in arrows:
        _draw_arrow(ax, rank, places[rank], places[other])
    ax.set_xlim(-1.25, 1.25)
    ax.set_ylim(-1.25, 1.25)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def _draw_rank(ax: "Axes", rank: int, x: float, y: float) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle((x, y), _RADIUS, facecolor="white", edgecolor=color(rank), linewidth=2.5, zorder=3))
    ax.text(x, y, str(rank), fontsize=14, ha="center", va="center", zorder=4)


def _draw_arrow(ax: "Axes", rank: int, start: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {
        "arrowstyle": "-|>",
        "color": color(rank),
        "linewidth": 2,
        "shrinkA": 17,
        "shrinkB": 17,
        "mutation_scale": 16,
        "connectionstyle": "arc3,rad=0.15",  # there and back are two arrows
    }
    ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
