"""Who talks to whom, and what is on its way: nodes, edges, messages along them, and what each node has got."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..topology import Graph
from ..topology.drawing import layout
from .axes import COLORS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = npt.NDArray[np.float64]

_NODE, _MESSAGE, _TREE, _GREY = COLORS[5], COLORS[1], COLORS[0], "#AAAAAA"
_RADIUS = 0.17  # neighbours are about 1 apart
_THIN: dict[str, Any] = {"color": _GREY, "linewidth": 1.3, "zorder": 1}
_THICK: dict[str, Any] = {"color": _TREE, "linewidth": 4, "zorder": 2, "solid_capstyle": "round"}
_TEXT: dict[str, Any] = {"ha": "center", "va": "center"}
_PLATE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.9}


def network(
    graph: Graph,
    ax: "Axes | None" = None,
    *,
    tree: Graph | None = None,
    below: Sequence[object] = (),
    messages: Mapping[tuple[int, int], object] | None = None,
) -> "Axes":
    """Draw a graph, so that distances are near the numbers of hops.

    Args:
        graph: who can talk to whom.
        ax: where to draw; a new figure by default.
        tree: a part of the graph whose edges are drawn thick, as its spanning tree.
        below: what to write below each node, as the sum that it has got.
        messages: what travels from i to j, by (i, j): an arrow beside the edge with a text.

    Errors: ValueError where `below` has too few or too many texts, or a message or an edge of the tree is along no edge.
    """
    sent, nodes = messages or {}, range(graph.size)
    thick = tree.edges if tree else ()
    for i, j in (*sent, *thick):
        if (min(i, j), max(i, j)) not in graph.edges:
            raise ValueError(f"{i}-{j} is no edge of the graph")
    if below and len(below) != graph.size:
        raise ValueError(f"{len(below)} texts for {graph.size} nodes: give one for each, or none")
    places = layout(graph)
    low, high = places.min(axis=0) - 0.55, places.max(axis=0) + 0.45
    ax = ax or new_axes(*(0.2 + 1.05 * (high - low)))
    for edge in graph.edges:
        style = _THICK if edge in thick else _THIN
        ax.plot(*places[list(edge)].T, **style)
    for (i, j), text in sent.items():
        _draw_message(ax, places[i], places[j], str(text))
    for node in nodes:
        _draw_node(ax, places[node], str(node), str(below[node]) if below else "")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()
    return ax


def _draw_node(ax: "Axes", place: Place, name: str, text: str) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle((place[0], place[1]), _RADIUS, facecolor=_NODE, edgecolor="white", linewidth=1.5, zorder=4))
    ax.text(place[0], place[1], name, fontsize=11, zorder=5, **_TEXT)
    if text:
        ax.text(place[0], place[1] - 0.34, text, fontsize=11, weight="bold", zorder=5, bbox=_PLATE, **_TEXT)


def _draw_message(ax: "Axes", start: Place, end: Place, text: str) -> None:
    """An arrow to the left of the edge, seen along it, so that the way back has a place of its own."""
    ahead = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
    aside = np.array([-ahead[1], ahead[0]])
    tail, tip = start + 1.3 * _RADIUS * ahead + 0.08 * aside, end - 1.3 * _RADIUS * ahead + 0.08 * aside
    arrow = {"arrowstyle": "-|>", "color": _MESSAGE, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 12}
    ax.annotate("", xy=(tip[0], tip[1]), xytext=(tail[0], tail[1]), arrowprops=arrow, zorder=3)
    middle = (tail + tip) / 2 + 0.16 * aside
    ax.text(middle[0], middle[1], text, fontsize=10, color=_MESSAGE, zorder=5, **_TEXT)
