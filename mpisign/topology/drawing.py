"""Topologies as text and as pictures. Pictures need matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .delays import hops
from .digraph import Digraph
from .exponential import OnePeerExponential
from .graph import Graph
from .spec import Topology
from .tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Places = npt.NDArray[np.float64]
Edges = Sequence[tuple[int, int]]

_NODE, _LINE = "#56B4E9", "#555555"


def text(tree: Tree) -> str:
    """Return the tree in lines, a path on one line as far as it goes; from its middle, or a chain from its end.

    >>> print(text(Tree(((1, 2, 4), (0,), (0, 3), (2,), (0,)))))
    0─┬─1
      ├─2───3
      └─4
    """
    eccentricities = [max(tree.distances(node)) for node in range(tree.size)]
    choose = max if tree.degree <= 2 else min
    return "\n".join(_lines(tree, eccentricities.index(choose(eccentricities)), None))


def picture(topology: Topology, title: str = "") -> "Figure":
    """Return a figure: a panel for each tree, or for each offset of a one-peer graph; arrows where one sends only."""
    from matplotlib.figure import Figure

    panels = _panels(topology)
    figure = Figure(figsize=(5.5 * len(panels), 5.5 + 0.3 * bool(title)), layout="constrained")
    for axes, (name, places, edges, directed) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        _draw(axes, places, edges, directed)
        axes.set_title(name, fontsize=11)
    figure.suptitle(title, fontsize=13)
    return figure


def _lines(tree: Tree, node: int, parent: int | None) -> list[str]:
    children = [child for child in tree.neighbors[node] if child != parent]
    head, lines = str(node), []
    for place, child in enumerate(children):
        last = place == len(children) - 1
        stem = "───" if len(children) == 1 else "─┬─" if place == 0 else " └─" if last else " ├─"
        first, *others = _lines(tree, child, node)
        lines.append((head if place == 0 else " " * len(head)) + stem + first)
        lines += [" " * len(head) + ("   " if last else " │ ") + other for other in others]
    return lines or [head]


def _panels(topology: Topology) -> list[tuple[str, Places, Edges, bool]]:
    """Return for each panel its name, where the nodes stand, the edges, and whether they have a direction."""
    if isinstance(topology, tuple):
        return [(f"tree {i} of {len(topology)}", layout(tree), tree.edges, False) for i, tree in enumerate(topology, 1)]
    if isinstance(topology, Digraph):
        return [("", _circle(topology.size), topology.edges, True)]
    if isinstance(topology, OnePeerExponential):
        nodes = range(topology.size)
        rounds = {topology.offset(r): r for r in reversed(range(topology.period))}
        return [
            (f"offset {offset}", _circle(topology.size), [(i, topology.dest(i, r)) for i in nodes if offset], True)
            for offset, r in sorted(rounds.items())
        ]
    return [("", layout(topology), topology.edges, False)]


def _circle(n: int) -> Places:
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def layout(graph: Graph) -> Places:
    """Return places whose distances are near the numbers of hops: float64[n, 2].

    Stress majorization (Gansner, Koren and North 2004), from a circle and from the principal coordinates; of the two the
    one with less stress.
    """
    far = hops(graph).astype(np.float64)
    if far.max() <= 1:
        return _circle(graph.size)
    starts = [_circle(graph.size) * far.max() / 2, _principal(far) + 0.01 * _circle(graph.size)]
    best = min((_majorized(start, far) for start in starts), key=lambda places: _stress(places, far))
    return _turned(best, 0, graph.neighbors[0][0])


def _principal(far: Places) -> Places:
    centered = far**2 - (far**2).mean(axis=0)
    values, vectors = np.linalg.eigh(-(centered - centered.mean(axis=1, keepdims=True)) / 2)
    scaled = vectors * np.sqrt(np.maximum(values, 0))
    return np.pad(scaled[:, ::-1], ((0, 0), (0, 2)))[:, :2]  # a graph of one node has one coordinate


def _majorized(places: Places, far: Places, steps: int = 300) -> Places:
    weights = 1 / np.maximum(far, 1) ** 2
    np.fill_diagonal(weights, 0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(steps):
        apart = np.linalg.norm(places[:, None] - places[None], axis=2)
        pull = weights * far / np.maximum(apart, 1e-9)
        places = inverse @ ((np.diag(pull.sum(axis=1)) - pull) @ places)
    return places


def _turned(places: Places, start: int, end: int) -> Places:
    """Return the places with the edge from `start` to `end` pointing to the right, and the other nodes below it."""
    x, y = (places[end] - places[start]) / np.linalg.norm(places[end] - places[start])
    turned: Places = (places - places[start]) @ np.array([[x, -y], [y, x]])
    return turned * [1, -1 if turned[:, 1].sum() > 0 else 1]


def _stress(places: Places, far: Places) -> float:
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    return float((((apart - far) / np.maximum(far, 1)) ** 2).sum())


def _draw(axes: "Axes", places: Places, edges: Edges, directed: bool) -> None:
    size = 15 if len(places) <= 40 else 9
    for i, j in edges:
        arrow: dict[str, Any] = {"arrowstyle": "-|>" if directed else "-", "color": _LINE, "linewidth": 1.2}
        bend = "arc3,rad=0.12" if directed else "arc3"  # so that the way back is another line
        axes.annotate(
            "",
            xy=tuple(places[j]),
            xytext=tuple(places[i]),
            arrowprops={**arrow, "shrinkA": 0, "shrinkB": size / 2 if directed else 0, "connectionstyle": bend},
        )
    axes.plot(*places.T, "o", color=_NODE, markersize=size, markeredgecolor="white", zorder=3)
    for node, place in enumerate(places):
        axes.text(place[0], place[1], str(node), fontsize=size * 0.55, ha="center", va="center", zorder=4)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    half = 0.55 * max(float(np.ptp(places, axis=0).max()), 1.0)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    axes.set_axis_off()
