"""What all pictures share: colours, and axes that say no more than they must."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""One a rank, in turn: told apart by most colour-blind readers (Okabe and Ito 2008, without their yellow)."""


def new_axes(width: float, height: float) -> "Axes":
    """Return the axes of a new figure of so many inches."""
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def color(number: int) -> str:
    """Return a colour for each rank or line, over and over."""
    return COLORS[number % len(COLORS)]


def without_frame(ax: "Axes") -> None:
    """Take away the box and the ticks: what is drawn speaks for itself."""
    ax.tick_params(length=0, labelsize=11)
    for side in ax.spines.values():
        side.set_visible(False)


def with_corner(ax: "Axes", x: str, y: str) -> None:
    """Leave the axes on the left and below, and name them."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=10)
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(y, fontsize=11)
