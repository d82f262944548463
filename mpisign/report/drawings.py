"""Which pictures a report has: each drawn by `mpisign.plotting`, the same run in the same colour everywhere."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import plotting
from .columns import columns, has, phases, shares
from .data import Parts
from .pictures import Picture
from .runs import Run
from .story import lanes, pauses, story

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGAINST = ("steps", "bytes", "seconds")

_FEW = 12  # epochs, up to which each is marked


def drawing(width: float, height: float, draw: "Callable[[Axes, bool], object]") -> "Callable[[bool], Figure]":
    """Return what makes a figure of so many inches and draws into its axes, told whether it stands alone."""

    def make(alone: bool) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure((width, height), layout="constrained")
        draw(figure.subplots(), alone)
        return figure

    return make


def curves(runs: Sequence[Run], y: str, x: str) -> Picture:
    """Draw a column of all runs against another."""

    def draw(ax: "Axes", alone: bool) -> None:
        plotting.curves({plain(run.name): _drawn(run, y) for run in runs}, y, [x], [ax])
        if legend := ax.get_legend():
            legend.remove()
        shown = [line for line in ax.lines if np.size(line.get_xdata())]
        for line in shown:
            if np.size(line.get_xdata()) <= _FEW:
                line.set(marker="o", markersize=4)
        if alone and len(runs) > 1 and shown:
            ax.legend(handles=shown, frameon=False, fontsize=9)

    ends = "; ".join(f"{run.name} {_ends(columns(run)[y])}" for run in runs)
    return Picture(f"{y}-{x}".replace(" ", "-").replace("'", ""), f"{y} against {x}: {ends}", drawing(3.7, 2.8, draw))


def _drawn(run: Run, y: str) -> Mapping[str, Sequence[float]]:
    """All columns, without rows where there is nothing in any: a run without a column has a colour, and no line."""
    found = columns(run)
    return found if has(run, y) else {name: [] for name in found}


def _ends(values: Sequence[float]) -> str:
    there = [value for value in values if not math.isnan(value)]
    return f"from {there[0]:.4g} to {there[-1]:.4g} in {len(there)} epochs" if there else "has none"


def time_by_phase(runs: Sequence[Run]) -> Picture:
    """Draw where the seconds of those runs went that have ended."""
    seconds = {run.name: phases(run) for run in runs if phases(run)}

    def draw(ax: "Axes", alone: bool) -> None:
        plotting.phases({plain(_short(name)): parts for name, parts in seconds.items()}, ax)

    told = "; ".join(
        f"{name}: {', '.join(f'{phase} {value:.3g} s' for phase, value in parts.items())}"
        for name, parts in seconds.items()
    )
    return Picture("phases", f"seconds by phase. {told}", drawing(7, 1.5 + 0.42 * len(seconds), draw))


def agreement(run: Run, number: int) -> Picture:
    """Draw how often each rank agreed with the verdict."""
    found, liars = shares(run), run.summary.get("byzantine", [])
    out = [int(rank) for rank in run.summary.get("quarantined") or {}]
    ordered = sorted((share, rank) for rank, share in enumerate(found) if share is not None)

    def draw(ax: "Axes", alone: bool) -> None:
        plotting.agreement(found, liars, out, ax)
        ax.set_xlabel("rank")

    alt = (
        f"{run.name}: agreement with the verdict by rank, from {ordered[0][0]:.1%} of rank {ordered[0][1]} "
        f"to {ordered[-1][0]:.1%} of rank {ordered[-1][1]}; ranks that lie: {', '.join(map(str, liars)) or 'none'}"
    )
    return Picture(f"agreement-{number}", alt, drawing(max(3.7, 1 + 0.42 * len(found)), 2.8, draw), run.name)


def classes(names: Sequence[str], dealt: Parts, number: int) -> Picture:
    """Draw which classes the workers of these runs held."""
    workers, kinds = len(dealt.of_workers), int(dealt.labels.max()) + 1

    def draw(ax: "Axes", alone: bool) -> None:
        plotting.classes(dealt.labels, dealt.of_workers, ax)
        ax.title.set_fontsize(9)
        if dealt.first:
            ax.set_xticks(range(workers), [str(worker + dealt.first) for worker in range(workers)])
        ax.set_xlabel("rank")

    alt = f"{', '.join(names)}: how many samples of {kinds} classes each of {workers} workers holds"
    size = max(3.7, 1.2 + 0.3 * workers), max(2.6, 1.2 + 0.3 * kinds)
    return Picture(f"classes-{number}", alt, drawing(*size, draw), ", ".join(names))


def failures(run: Run, number: int) -> Picture:
    """Draw what befell a run."""
    told = story(run)
    rows = lanes(run, told)
    marks = [(each.seconds, rank, each.what) for each in told if each.seconds is not None for rank in each.ranks]

    def draw(ax: "Axes", alone: bool) -> None:
        plotting.timeline(rows, marks, pauses(told), ax)

    alt = f"{run.name}: time line of {len(told)} happenings, which the table below tells"
    return Picture(f"failures-{number}", alt, drawing(7, 1.5 + 0.26 * max(len(rows), 1), draw))


def plain(name: str) -> str:
    """A name in which Matplotlib sees no formula."""
    return name.replace("$", r"\$")


def _short(name: str, most: int = 28) -> str:
    """A name that leaves room beside it."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"
