import networkx
import pytest

from mpisign.errors import TopologyError
from mpisign.topology import chain, complete, grid, hypercube, ring, torus
from mpisign.topology.outside import from_networkx

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 64]


@pytest.mark.parametrize("build", [ring, complete, grid, torus])
@pytest.mark.parametrize("n", SIZES)
def test_every_size_gives_a_graph_of_n_nodes(build, n):
    assert build(n).size == n


@pytest.mark.parametrize("build", [ring, complete, grid, torus, hypercube])
@pytest.mark.parametrize("n", [0, -1])
def test_no_builder_takes_fewer_than_one_node(build, n):
    with pytest.raises(TopologyError, match=f"a graph needs at least 1 node, got {n}"):
        build(n)


@pytest.mark.parametrize("n", [3, 4, 7, 16])
def test_in_a_ring_all_have_two_neighbours_and_half_the_ring_between_them(n):
    assert {len(each) for each in ring(n).neighbors} == {2}
    assert ring(n).diameter == n // 2


def test_rings_of_one_and_two_nodes_are_chains():
    assert [ring(n).neighbors for n in (1, 2)] == [chain(n).neighbors for n in (1, 2)]


@pytest.mark.parametrize("rows, columns", [(1, 1), (1, 5), (2, 2), (2, 3), (3, 3), (3, 2), (4, 5)])
def test_grids_and_tori_are_those_of_networkx(rows, columns):
    for build, periodic in ((grid, False), (torus, True)):
        other = networkx.Graph(networkx.grid_2d_graph(rows, columns, periodic=periodic))
        other.remove_edges_from(list(networkx.selfloop_edges(other)))
        names = {(r, c): r * columns + c for r in range(rows) for c in range(columns)}
        assert build(rows * columns, rows) == from_networkx(networkx.relabel_nodes(other, names))


def test_grids_are_as_square_as_n_allows():
    assert grid(16) == grid(16, rows=4)
    assert grid(12) == grid(12, rows=3)
    assert grid(7).neighbors == chain(7).neighbors
    assert torus(7) == ring(7)


def test_a_torus_of_four_by_four_is_a_hypercube_of_sixteen_in_other_numbers():
    assert networkx.is_isomorphic(networkx.Graph(torus(16).edges), networkx.Graph(hypercube(16).edges))


@pytest.mark.parametrize("rows", [3, 0, -2, 32])
def test_rows_must_divide_the_nodes(rows):
    with pytest.raises(TopologyError, match=f"a grid of 16 nodes can't have {rows} rows: choose a divisor of 16"):
        grid(16, rows)


@pytest.mark.parametrize("n, bits", [(1, 0), (2, 1), (4, 2), (16, 4)])
def test_neighbours_in_a_hypercube_differ_in_one_bit(n, bits):
    graph = hypercube(n)
    assert graph.diameter == graph.degree == bits
    assert all((i ^ j).bit_count() == graph.distance(i, j) for i in range(n) for j in range(n))


def test_a_hypercube_of_twelve_is_refused():
    with pytest.raises(TopologyError, match="needs a power of two of nodes, got 12: the nearest are 8 and 16"):
        hypercube(12)
