"""Which classes each worker holds: a partition of labelled data as a field of discs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .axes import color, new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LARGEST = 0.47  # radius of the largest disc; neighbours are 1 apart


def classes(
    labels: npt.NDArray[np.integer[Any]], parts: Sequence[npt.NDArray[np.integer[Any]]], ax: "Axes | None" = None
) -> "Axes":
    """Draw a column for each worker, with a disc for each class, whose area is how many samples of it the worker holds.

    The title says how unequal workers are: the mean over them of the total-variation distance, half of Σ|p − q|, between
    the shares p of the classes among a worker's samples and those in the whole, q.

    Args:
        labels: integers >= 0 `[N]`, of all samples.
        parts: the indices of each worker's samples, as `tasks.partition` deals them; each part has one or more.
        ax: where to draw; a new figure by default.

    Errors: ValueError where there is no worker, or one without samples.
    """
    if not parts or not all(len(part) for part in parts):
        raise ValueError(
            f"parts of {[len(part) for part in parts]} samples: wanted one worker or more, and each with some"
        )
    count = int(labels.max()) + 1
    held = np.array([np.bincount(labels[part], minlength=count) for part in parts])  # [workers, classes]
    whole = np.bincount(labels, minlength=count) / len(labels)
    distance = float(np.abs(held / held.sum(1, keepdims=True) - whole).sum(1).mean()) / 2
    ax = ax or new_axes(1.2 + 0.36 * len(parts), 1.2 + 0.36 * count)
    radii = _LARGEST * np.sqrt(held / held.max())
    for worker, label in np.argwhere(held).tolist():
        _draw_disc(ax, worker, label, float(radii[worker, label]))
    ax.set_xlim(-0.6, len(parts) - 0.4)
    ax.set_ylim(-0.6, count - 0.4)
    ax.set_xticks(range(len(parts)))
    ax.set_yticks(range(count))
    ax.set_aspect("equal")
    with_corner(ax, "worker", "class")
    ax.set_title(f"largest disc: {held.max():,} samples; mean distance {distance:.2f}", fontsize=10)
    return ax


def _draw_disc(ax: "Axes", worker: int, label: int, radius: float) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle((worker, label), radius, facecolor=color(0), edgecolor="none"))
