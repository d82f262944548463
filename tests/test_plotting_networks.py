import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting
from mpisign.topology import binary_tree, chain, ring
from mpisign.topology.spanning import spanning_tree


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_each_node_is_a_disc_with_its_number_and_each_edge_a_line():
    ax = plotting.network(binary_tree(7))
    assert (len(ax.patches), len(ax.lines)) == (7, 6)
    assert texts(ax) == list("0123456")


def test_neighbours_are_about_one_apart_and_those_far_away_farther():
    centers = [disc.center[0] for disc in plotting.network(chain(4)).patches]
    assert centers == pytest.approx([0, 1, 2, 3], abs=0.05)


def test_what_a_node_has_stands_below_it():
    ax = plotting.network(chain(2), below=[3, 4])
    found = {text.get_text(): text.get_position() for text in ax.texts}
    assert found["3"][0] == pytest.approx(found["0"][0])
    assert found["3"][1] < found["0"][1]


def test_messages_there_and_back_stand_on_two_sides_of_the_edge():
    ax = plotting.network(chain(3), messages={(0, 1): "there", (1, 0): "back"})
    found = {text.get_text(): text.get_position() for text in ax.texts}
    assert found["there"][1] > found["0"][1] > found["back"][1]


def test_the_edges_of_a_tree_within_a_graph_are_thick():
    graph = ring(5)
    widths = [line.get_linewidth() for line in plotting.network(graph, tree=spanning_tree(graph)).lines]
    assert sorted(widths) == [1.3, 4, 4, 4, 4]


def test_it_draws_into_the_axes_it_is_given():
    ax = pyplot.subplots()[1]
    assert plotting.network(chain(1), ax) is ax


def test_what_is_no_part_of_the_graph_is_refused():
    with pytest.raises(ValueError, match="0-2 is no edge"):
        plotting.network(chain(3), messages={(0, 2): ""})
    with pytest.raises(ValueError, match="0-2 is no edge"):
        plotting.network(ring(4), tree=chain(4).from_edges(4, [(0, 2), (0, 1), (2, 3)]))
    with pytest.raises(ValueError, match="1 texts for 3 nodes"):
        plotting.network(chain(3), below=["a"])
