"""Where ranks and their threads run: machines as rows of cores."""

from typing import TYPE_CHECKING

from .axes import color, new_axes, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IDLE = "#EEEEEE"
_READABLE = 2  # numbers in one core


def machines(nodes: int, cores: int, ranks: int, threads: int, ax: "Axes | None" = None) -> "Axes":
    """Draw `nodes` machines of so many cores each, on which so many ranks each run with so many threads.

    A core has the colour and the number of its rank, a grey one has nothing to do, and one with several colours is
    shared: its ranks take turns.

    Errors: ValueError for a number below 1.
    """
    if min(nodes, cores, ranks, threads) < 1:
        raise ValueError(
            f"wanted 1 or more of each, got nodes {nodes}, cores {cores}, ranks {ranks}, threads {threads}"
        )
    ax = ax or new_axes(0.9 + 0.62 * cores, 0.5 + 0.72 * nodes)
    for node in range(nodes):
        on_core: list[list[int]] = [[] for _ in range(cores)]
        for thread in range(ranks * threads):
            on_core[thread % cores].append(node * ranks + thread // threads)
        for core, busy in enumerate(on_core):
            _draw_core(ax, core, node, busy)
    ax.set_xlim(-0.6, cores - 0.4)
    ax.set_ylim(nodes - 0.4, -0.6)  # node 0 on top
    ax.set_yticks(range(nodes), [f"node {node}" for node in range(nodes)])
    ax.set_xticks([])
    ax.set_aspect("equal")
    without_frame(ax)
    return ax


def _draw_core(ax: "Axes", core: int, node: int, ranks: list[int]) -> None:
    from matplotlib.patches import Rectangle

    height = 0.88 / max(len(ranks), 1)
    for place, rank in enumerate(ranks or [None]):
        top = node - 0.44 + place * height
        face = _IDLE if rank is None else color(rank)
        ax.add_patch(Rectangle((core - 0.44, top), 0.88, height, facecolor=face, edgecolor="white", linewidth=1.5))
        if rank is not None and len(ranks) <= _READABLE:
            size, ink = 13 - 2 * len(ranks), "black" if _is_light(face) else "white"
            ax.text(core, top + height / 2, str(rank), color=ink, fontsize=size, ha="center", va="center")


def _is_light(face: str) -> bool:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(face)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
