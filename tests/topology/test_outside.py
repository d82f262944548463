import networkx
import pytest

from mpisign.errors import TopologyError
from mpisign.topology import Digraph, Graph, hypercube
from mpisign.topology.outside import from_networkx, read_arcs, read_edges


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "edges.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_comments_blank_lines_commas_and_order_don_t_matter(file):
    text = "\ufeff# my network\n\n0 1\n  2,1   # a slow link\n3 , 2\r\n\t0\t3\n#4 5\n"
    assert read_edges(file(text)) == Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (0, 3)])


def test_a_directed_file_keeps_its_arrows(file):
    assert read_arcs(file("0 1\n1 2\n2 0\n1 0\n")).successors == ((1,), (0, 2), (0,))


@pytest.mark.parametrize("read", [read_edges, read_arcs])
@pytest.mark.parametrize(
    "text, message",
    [
        ("0 1\nhello\n", "line 2: 'hello' is no edge: wanted two numbers, as in \"0 1\""),
        ("0 1 2\n", "line 1: '0 1 2' is no edge"),
        ("0 -1\n", "line 1: '0 -1' is no edge"),
        ("0.5 1\n", "line 1: '0.5 1' is no edge"),
        ("0 1" + "0" * 5000, "line 1: .* is no edge"),
        ("01\n", "line 1: '01' is no edge"),
        ("0 1\n1 0\n\n1 1\n", "line 4: an edge from node 1 to itself: leave it out"),
        ("0 1\n1 0\n0 1\n", "is given already in line 1: leave one out"),
        ("", "no edge in it"),
        ("# nothing\n", "no edge in it"),
        ("1 2\n", "line 1: node 2, but no line names node 0: number the nodes from 0 without a gap"),
        ("0 1\n1 3\n", "line 2: node 3, but no line names node 2"),
        ("0 1\n1 999999999\n", "line 2: node 999999999, but no line names node 2"),
        (b"\xff\xfe\x00", "can't read the edges"),
    ],
)
def test_what_is_no_edge_is_refused_with_its_line(file, read, text, message):
    path = file(text)
    with pytest.raises(TopologyError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "read, text, message",
    [
        (read_edges, "0 1\n1 0\n", "line 2: edge 1-0 is given already in line 1: leave one out"),
        (read_edges, "0 1\n2 3\n", "line 2: node 2 can't be reached from node 0: add an edge that joins the two parts"),
        (read_arcs, "0 1\n2 0\n1 0\n", "line 2: node 2 can't be reached from node 0: add an edge, so that"),
        (read_arcs, "0 1\n1 0\n1 2\n", "line 3: node 2 can't reach node 0: add an edge, so that"),
    ],
)
def test_what_is_not_connected_or_given_twice_is_refused_with_its_line(file, read, text, message):
    with pytest.raises(TopologyError, match=message):
        read(file(text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TopologyError, match=r"none\.txt: can't read the edges \(No such file or directory\)"):
        read_edges(tmp_path / "none.txt")


def test_nodes_of_networkx_keep_their_numbers_whatever_their_order():
    other = networkx.Graph([(2, 1), (1, 0), (0, 3)])
    assert from_networkx(other) == Graph.from_edges(4, [(0, 1), (1, 2), (0, 3)])


def test_nodes_with_names_are_numbered_in_order():
    assert from_networkx(networkx.Graph([("b", "a"), ("a", "c")])) == Graph.from_edges(3, [(0, 1), (1, 2)])
    assert from_networkx(networkx.hypercube_graph(3)) == hypercube(8)


def test_a_directed_graph_of_networkx_becomes_a_digraph():
    assert from_networkx(networkx.DiGraph([(0, 1), (1, 2), (2, 0)])) == Digraph(((1,), (2,), (0,)))


@pytest.mark.parametrize(
    "other, message",
    [
        (networkx.Graph([(0, 1), (1, 1)]), "node 1 is its own neighbour"),
        (networkx.MultiGraph([(0, 1), (0, 1)]), "edge 0-1 is given twice"),
        (networkx.Graph([(0, 1), (2, 3)]), "node 2 can't be reached"),
        (networkx.DiGraph([(0, 1)]), "node 1 can't reach node 0"),
        (networkx.Graph(), "at least 1 node"),
    ],
)
def test_what_is_no_topology_is_refused(other, message):
    with pytest.raises(TopologyError, match=message):
        from_networkx(other)
