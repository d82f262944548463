"""How often each worker agrees with the majority: who lies stands out, as long as most are honest."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from .axes import COLORS, new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#777777"
_PLATE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # hides the line at one half
_HONEST: dict[str, Any] = {"color": COLORS[5]}
_LIES: dict[str, Any] = {"color": COLORS[1], "hatch": "//", "edgecolor": "white"}


def agreement(
    shares: Sequence[float | None],
    liars: Collection[int] = (),
    excluded: Collection[int] = (),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a bar for each worker: the share of its signs that were the verdict's, with a line at one half.

    Args:
        shares: each worker's, in [0, 1]; None, which has no bar, for one that never voted. `agreement_by_rank` of a run.
        liars: those whose bars are hatched and have the other colour, as nobody in the run knows.
        excluded: those marked as such, `quarantined` of a run.
        ax: where to draw; a new figure by default.

    Errors: ValueError where a share is none, or a liar or an excluded worker is not among the workers.
    """
    for worker, share in enumerate(shares):
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"the share of worker {worker} is {share}: wanted one in [0, 1], or None")
    for worker in (*liars, *excluded):
        if worker not in range(len(shares)):
            raise ValueError(f"worker {worker} is not among {len(shares)}: wanted 0 to {len(shares) - 1}")
    ax = ax or new_axes(1.2 + 0.62 * len(shares), 3)
    for worker, share in enumerate(shares):
        height = 100 * (share or 0)
        ax.bar(worker, height, width=0.75, **(_LIES if worker in liars else _HONEST))
        text = ("none" if share is None else f"{height:.0f}") + ("\nout" if worker in excluded else "")
        ax.text(worker, height + 1.5, text, ha="center", va="bottom", fontsize=10, bbox=_PLATE, zorder=3)
    ax.axhline(50, color=_GREY, linestyle="--", linewidth=1.2)
    ax.bar(0, 0, label="honest", **_HONEST)
    ax.bar(0, 0, label="lies", **_LIES)
    ax.set_xticks(range(len(shares)))
    ax.set_ylim(0, 118)
    ax.set_yticks(range(0, 101, 25))
    with_corner(ax, "worker", "agrees with the verdict (%)")
    ax.legend(frameon=False, fontsize=10, loc="upper right", ncols=2)
    return ax
