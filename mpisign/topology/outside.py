"""Graphs from outside: edge-list files and networkx."""

import re
from pathlib import Path
from typing import Any

from ..errors import TopologyError
from .digraph import Digraph
from .graph import Graph
from .search import first_unreached

_LINE = re.compile(r"(\d{1,9})\s*[\s,]\s*(\d{1,9})")


def read_edges(path: Path) -> Graph:
    """Return the graph of a text file with an edge "i j" (or "i, j") a line, in either direction.

    Nodes are numbered from 0 without a gap. Blank lines, and what follows a #, are ignored.

    Errors: TopologyError, with the line, for what is no edge, a loop, an edge given twice, a part that is not connected
    with the rest; and for a file that can't be read.
    """
    lines = _read(path)
    edges: dict[tuple[int, int], int] = {}
    for line, (i, j) in lines.items():
        edge = min(i, j), max(i, j)
        if edge in edges:
            raise TopologyError(
                f"{path}, line {line}: edge {i}-{j} is given already in line {edges[edge]}: leave one out"
            )
        edges[edge] = line
    neighbors: list[list[int]] = [[] for _ in range(_size(path, lines))]
    for i, j in edges:
        neighbors[i].append(j)
        neighbors[j].append(i)
    if (node := first_unreached(neighbors)) is not None:
        raise TopologyError(
            f"{path}, line {_line_of(node, lines)}: node {node} can't be reached from node 0: add an edge that joins the "
            f"two parts"
        )
    return Graph(tuple(map(tuple, neighbors)))


def read_arcs(path: Path) -> Digraph:
    """Return the digraph of a text file with an edge "from to" a line, otherwise as `read_edges`.

    Errors: as `read_edges`; a node that can't reach the others, or be reached by them.
    """
    lines = _read(path)
    successors: list[dict[int, int]] = [{} for _ in range(_size(path, lines))]
    predecessors: list[list[int]] = [[] for _ in successors]
    for line, (i, j) in lines.items():
        if j in successors[i]:
            raise TopologyError(
                f"{path}, line {line}: edge {i}→{j} is given already in line {successors[i][j]}: leave one out"
            )
        successors[i][j] = line
        predecessors[j].append(i)
    for neighbors, lacks in (([*map(list, successors)], "be reached from"), (predecessors, "reach")):
        if (node := first_unreached(neighbors)) is not None:
            raise TopologyError(
                f"{path}, line {_line_of(node, lines)}: node {node} can't {lacks} node 0: add an edge, so that the graph "
                f"is strongly connected"
            )
    return Digraph(tuple(map(tuple, successors)))


def from_networkx(graph: Any) -> Graph | Digraph:
    """Return a networkx graph as a Graph, or a directed one as a Digraph; weights and other attributes are left out.

    Nodes that are called 0 … n−1 keep their numbers; others are numbered in the order in which networkx has them.

    Errors: TopologyError for what is no Graph or Digraph: loops, parallel edges, more than one part.
    """
    names = list(graph.nodes)
    numbers = {name: number for number, name in enumerate(names)}
    if all(isinstance(name, int) for name in names) and set(names) == set(range(len(names))):
        numbers = {name: name for name in names}
    edges = [(numbers[i], numbers[j]) for i, j in graph.edges()]
    return (Digraph if graph.is_directed() else Graph).from_edges(len(names), edges)


def _read(path: Path) -> dict[int, tuple[int, int]]:
    """Return {line: (i, j)}."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TopologyError(f"{path}: can't read the edges ({reason})") from None
    edges = {}
    for line, content in enumerate(text.splitlines(), start=1):
        content = content.partition("#")[0].strip()
        if not content:
            continue
        found = _LINE.fullmatch(content)
        if found is None:
            raise TopologyError(f'{path}, line {line}: {content[:40]!r} is no edge: wanted two numbers, as in "0 1"')
        i, j = int(found[1]), int(found[2])
        if i == j:
            raise TopologyError(f"{path}, line {line}: an edge from node {i} to itself: leave it out")
        edges[line] = i, j
    return edges


def _size(path: Path, lines: dict[int, tuple[int, int]]) -> int:
    """Return the number of nodes, after a check that none is missing."""
    if not lines:
        raise TopologyError(f"{path}: no edge in it: wanted a line with two numbers for each, as in 0 1")
    named = {node for edge in lines.values() for node in edge}
    missing = next(node for node in range(len(named) + 1) if node not in named)
    if missing < max(named):
        raise TopologyError(
            f"{path}, line {_line_of(max(named), lines)}: node {max(named)}, but no line names node {missing}: number the "
            f"nodes from 0 without a gap"
        )
    return len(named)


def _line_of(node: int, lines: dict[int, tuple[int, int]]) -> int:
    return next(line for line, edge in lines.items() if node in edge)
