"""What became of ranks: who took part when, what befell them, and when all stood still."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .axes import COLORS, new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Span = tuple[float, float]

_LANE, _STILL = COLORS[5], "#999999"
_MARKS = {
    "injected": ("v", COLORS[1]),
    "lost": ("s", COLORS[6]),
    "late": ("X", COLORS[4]),
    "returned": ("o", COLORS[2]),
}
_OTHER = ("D", COLORS[3])
_ABOVE = 0.3  # of its lane stands what is injected: it strikes from there, and what comes of it at once stays in sight


def timeline(
    lanes: Mapping[int, Sequence[Span]],
    marks: Sequence[tuple[float, int, str]] = (),
    pauses: Sequence[Span] = (),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a lane for each rank, as long as it takes part, with marks on it; and grey bands while nobody gets on.

    Args:
        lanes: for each rank the spans, in seconds, in which it takes part.
        marks: (seconds, rank, what): injected, lost, late and returned have marks of their own.
        pauses: spans from a failure's detection until training went on.
        ax: where to draw; a new figure by default.

    Errors: ValueError where a mark's rank has no lane, or a span ends before it begins.
    """
    rows = {rank: row for row, rank in enumerate(lanes)}
    for _, rank, what in marks:
        if rank not in rows:
            raise ValueError(f"{what} of rank {rank}, which has no lane: wanted one of {sorted(rows)}")
    for start, end in (*pauses, *(span for spans in lanes.values() for span in spans)):
        if not start <= end:
            raise ValueError(f"a span from {start} to {end} s: wanted its end after its start")
    ax = ax or new_axes(6.4, 1.5 + 0.26 * len(lanes))
    for number, (start, end) in enumerate(pauses):
        label = "_" if number else "recovering"
        ax.axvspan(start, end, color=_STILL, alpha=0.45, linewidth=0.8, zorder=1, label=label)
    for rank, spans in lanes.items():
        for start, end in spans:
            ax.plot([start, end], [rows[rank]] * 2, color=_LANE, linewidth=5, solid_capstyle="butt", zorder=2)
    for what in dict.fromkeys(kind for _, _, kind in marks):
        mark, tint = _MARKS.get(what, _OTHER)
        above = _ABOVE * (what == "injected")
        x, y = zip(*((seconds, rows[rank] - above) for seconds, rank, kind in marks if kind == what), strict=True)
        ax.plot(x, y, mark, color=tint, markersize=8, markeredgecolor="white", label=what, zorder=3)
    ax.set_yticks(range(len(rows)), [str(rank) for rank in rows])
    ax.set_ylim(len(rows) - 0.5, -0.7)
    with_corner(ax, "seconds", "rank")
    if marks or pauses:
        ax.legend(frameon=False, fontsize=10, ncols=5, loc="lower left", bbox_to_anchor=(0, 1))
    return ax
