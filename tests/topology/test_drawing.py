import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from test_tree import trees

from mpisign.topology import Digraph, Tree, binary_tree, chain, complete, grid, parse, ring, star
from mpisign.topology.drawing import text


def drawn_edges(drawing):
    """The edges that the text shows: a number hangs on the one that its line's rule begins at."""
    lines = drawing.split("\n")
    starts = {}  # (row, column of the first digit) -> number
    for row, line in enumerate(lines):
        for column, letter in enumerate(line):
            if letter.isdecimal() and (column == 0 or not line[column - 1].isdecimal()):
                starts[row, column] = int("".join(itertools.takewhile(str.isdecimal, line[column:])))
    edges = []
    for (row, column), number in starts.items():
        if (row, column) == min(starts):
            continue
        if lines[row][column - 3 : column] in ("───", "─┬─"):
            end = column - 3
        else:
            assert lines[row][column - 2 : column] in ("├─", "└─")
            stem = column - 2
            row -= 1
            while lines[row][stem] != "┬":
                assert lines[row][stem] in "│├"
                row -= 1
            end = stem - 1
        line = lines[row][:end]
        digits = "".join(reversed([*itertools.takewhile(str.isdecimal, reversed(line))]))
        edges.append((int(digits), number))
    return edges


@given(trees(largest=20))
def test_the_text_shows_every_edge_and_no_other(tree):
    edges = drawn_edges(text(tree))
    assert sorted((min(edge), max(edge)) for edge in edges) == list(tree.edges)


def test_a_chain_is_one_line_from_its_end_and_a_tree_hangs_on_its_middle():
    assert text(chain(4)) == "0───1───2───3"
    assert text(chain(1)) == "0"
    assert text(star(4, 2)) == "2─┬─0\n  ├─1\n  └─3"
    assert text(binary_tree(5)) == "1─┬─0\n  ├─2───4\n  └─3"


matplotlib = pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

from mpisign.topology import drawing  # noqa: E402


@pytest.mark.parametrize("graph", [chain(9), ring(8), grid(12), complete(5), binary_tree(15), chain(1), chain(2)])
def test_nodes_stand_apart_and_neighbours_nearer_than_others(graph):
    places = drawing.layout(graph)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert np.isfinite(places).all()
    others = ~np.eye(graph.size, dtype=bool)
    assert graph.size == 1 or apart[others].min() > 0.1
    near = [apart[i, j] for i, j in graph.edges]
    far = [apart[i, j] for i in range(graph.size) for j in range(i) if graph.distance(i, j) > 2]
    assert not far or np.mean(near) < np.mean(far)


def test_a_chain_is_a_straight_line_from_left_to_right():
    places = drawing.layout(chain(7))
    assert np.allclose(places, [(node, 0) for node in range(7)], atol=0.05)  # 300 steps of a slow iteration


@pytest.mark.parametrize(
    "spec, panels, lines",
    [
        ("chain:5", 1, 4),
        ("ring:6", 1, 6),
        ("double_binary_trees:16", 2, 15),
        ("exponential:8", 1, 24),
        ("one_peer_exponential:16:reference:2", 4, 16),
        ("one_peer_exponential:1", 1, 0),
        ("complete:50", 1, 1225),
    ],
)
def test_a_picture_has_all_nodes_and_edges(spec, panels, lines):
    topology = parse(spec)
    figure = drawing.picture(topology, spec)
    assert len(figure.axes) == panels
    for axes in figure.axes:
        drawn = [each for each in axes.texts if getattr(each, "arrow_patch", None) is not None]
        names = [each.get_text() for each in axes.texts if each.get_text()]
        assert len(drawn) == lines
        assert names == [str(node) for node in range(len(names))]
        styles = {type(each.arrow_patch.get_arrowstyle()).__name__ for each in drawn}
        one_way = isinstance(topology, Digraph) or "one_peer" in spec
        assert styles <= ({"CurveFilledB"} if one_way else {"Curve"})
    assert figure.get_suptitle() == spec


@given(trees(largest=12))
@settings(max_examples=15)
def test_every_tree_has_a_layout(tree):
    assert isinstance(tree, Tree)
    assert np.isfinite(drawing.layout(tree)).all()
