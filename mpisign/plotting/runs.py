"""Messages between ranks over time, and votes as a grid of signs."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .axes import color, new_axes, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..comm import Message

_POSITIVE, _NEGATIVE, _TIED = "#56B4E9", "#D55E00", "#DDDDDD"  # differ in lightness too, so that print shows them


def messages(log: Sequence["Message"], size: int, ax: "Axes | None" = None, names: Sequence[str] = ()) -> "Axes":
    """Draw a simulated run: one line a rank, one arrow a message, in the order of sending, with its bytes.

    Below, the verb that the messages are part of.

    Args:
        log: what `simulate(…, log=log)` has filled.
        size: the number of ranks.
        ax: where to draw; a new figure by default.
        names: what to call the ranks; by default "rank 0", "rank 1", …

    Errors: ValueError where a message comes from or goes to a rank that is not below `size`, or where names are too few.
    """
    names = names or [f"rank {rank}" for rank in range(size)]
    if len(names) != size:
        raise ValueError(f"{len(names)} names for {size} ranks: give one for each, or none")
    for message in log:
        if max(message.source, message.dest) >= size:
            raise ValueError(f"a message from rank {message.source} to rank {message.dest}, but size is {size}")
    ax = ax or new_axes(2 + 0.9 * max(len(log), 2), 0.8 + 0.65 * size)
    for rank in range(size):
        ax.axhline(rank, color=color(rank), linewidth=1.5, alpha=0.5, zorder=0)
    for time, message in enumerate(log):
        _draw_message(ax, time, message)
    ax.set_xlim(-0.3, max(len(log), 1) + 0.1)
    ax.set_ylim(size - 0.5, -0.6)  # rank 0 on top
    ax.set_yticks(range(size), names)
    _name_verbs(ax, [message.verb for message in log])
    ax.set_xlabel("time: messages in the order of sending")
    without_frame(ax)
    return ax


def votes(
    signs: npt.ArrayLike,
    verdict: npt.ArrayLike,
    ax: "Axes | None" = None,
    names: Sequence[str] = (),
    below: str = "verdict",
) -> "Axes":
    """Draw a vote: a row of signs for each worker, and below them the verdict.

    Args:
        signs: [workers, coordinates] of +1, −1 and 0 (no vote); only the sign of a number counts.
        verdict: [coordinates] of +1, −1 and 0 (tied).
        ax: where to draw; a new figure by default.
        names: what to call the workers; by default "worker 0", "worker 1", …
        below: what to call the last row.

    Errors: ValueError where the shapes don't fit, or names are too few.
    """
    ballots, decided = np.sign(np.asarray(signs)), np.sign(np.asarray(verdict))
    if ballots.ndim != 2 or decided.shape != ballots.shape[1:]:
        raise ValueError(
            f"signs {ballots.shape} and verdict {decided.shape}: wanted [workers, coordinates] and [coordinates]"
        )
    workers, coordinates = ballots.shape
    names = names or [f"worker {worker}" for worker in range(workers)]
    if len(names) != workers:
        raise ValueError(f"{len(names)} names for {workers} workers: give one for each, or none")
    ax = ax or new_axes(1.6 + 0.6 * coordinates, 0.9 + 0.5 * workers)
    heights = [*range(workers), workers + 0.4]  # a gap before the verdict
    for height, row in zip(heights, [*ballots, decided], strict=True):
        for coordinate, sign in enumerate(row):
            _draw_sign(ax, coordinate, height, int(sign))
    ax.set_xlim(-0.55, coordinates - 0.45)
    ax.set_ylim(workers + 0.95, -0.55)  # worker 0 on top
    ax.set_yticks(heights, [*names, below])
    ax.set_xticks(range(coordinates))
    ax.set_xlabel("coordinate")
    ax.set_aspect("equal")
    without_frame(ax)
    return ax


def _name_verbs(ax: "Axes", verbs: Sequence[str]) -> None:
    """Name each verb once for a row of its messages, and part it from the next by a line."""
    groups = [(verb, list(row)) for verb, row in groupby(range(len(verbs)), key=verbs.__getitem__)]
    ax.set_xticks([(row[0] + row[-1]) / 2 + 0.45 for _, row in groups], [verb for verb, _ in groups])
    for _, row in groups[1:]:
        ax.axvline(row[0] - 0.05, color="#BBBBBB", linewidth=1, linestyle=":", zorder=0)


def _draw_message(ax: "Axes", time: int, message: "Message") -> None:
    start, end = (time + 0.1, message.source), (time + 0.8, message.dest)
    ax.plot(*start, "o", color=color(message.source), markersize=5)
    arrow = {
        "arrowstyle": "-|>",
        "color": color(message.source),
        "linewidth": 2,
        "shrinkA": 0,
        "shrinkB": 0,
        "mutation_scale": 15,
    }
    ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
    away = 0.12 if message.dest < message.source else -0.12  # the label stands where the arrow doesn't
    height, align = message.source + away, "top" if away > 0 else "bottom"
    ax.text(time + 0.1, height, f"{message.nbytes:,} B", fontsize=9, ha="center", va=align)


def _draw_sign(ax: "Axes", x: float, y: float, sign: int) -> None:
    from matplotlib.patches import Rectangle

    color, text = {1: (_POSITIVE, "+"), -1: (_NEGATIVE, "−"), 0: (_TIED, "0")}[sign]
    ax.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=color, edgecolor="none"))
    ax.text(x, y, text, fontsize=13, ha="center", va="center")
