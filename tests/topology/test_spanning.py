import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph import graphs

from mpisign.errors import TopologyError
from mpisign.topology import Graph, Tree, chain, complete, grid, hypercube, kary_tree, ring, star
from mpisign.topology.davis import davis_southern_women
from mpisign.topology.spanning import (
    best_spanning_tree,
    link_seconds,
    measured_tree,
    minimum_diameter_tree,
    slowest_edge,
    spanning_tree,
)


@st.composite
def links(draw, largest=6):
    """Seconds of the links of a random connected graph; few different ones, so that some are equal."""
    graph = draw(graphs(largest=largest))
    seconds = np.full((graph.size, graph.size), np.inf)
    for i, j in graph.edges:
        seconds[i, j] = seconds[j, i] = draw(st.integers(1, 9))
    return seconds


def every_spanning_tree(graph):
    for edges in itertools.combinations(graph.edges, graph.size - 1):
        try:
            yield Tree.from_edges(graph.size, edges)
        except TopologyError:
            continue


@given(graphs(largest=12), st.data())
def test_the_tree_of_a_root_is_the_union_of_its_smallest_shortest_paths(graph, data):
    root = data.draw(st.integers(0, graph.size - 1))
    other = networkx.Graph(graph.edges)
    other.add_node(root)
    paths = [min(networkx.all_shortest_paths(other, root, node)) for node in range(graph.size)]
    edges = {(min(edge), max(edge)) for path in paths for edge in itertools.pairwise(path)}
    assert spanning_tree(graph, root).edges == tuple(sorted(edges))


@given(graphs(largest=6))
@settings(max_examples=60)
def test_no_spanning_tree_has_a_smaller_diameter_than_the_minimum_diameter_tree(graph):
    tree = minimum_diameter_tree(graph)
    assert set(tree.edges) <= set(graph.edges)
    assert tree.diameter == min(each.diameter for each in every_spanning_tree(graph))
    assert tree.diameter <= best_spanning_tree(graph).diameter <= tree.diameter + 1


@pytest.mark.parametrize(
    "graph, diameter",
    [
        (chain(1), 0),
        (chain(2), 1),
        (chain(7), 6),
        (star(5), 2),
        (complete(9), 2),
        (ring(8), 7),
        (ring(9), 8),
        (grid(9), 4),
        (hypercube(16), 7),
    ],
)
def test_the_minimum_diameters_of_the_usual_graphs(graph, diameter):
    assert minimum_diameter_tree(graph).diameter == diameter


def test_the_middle_of_an_edge_can_make_a_narrower_tree_than_any_root():
    graph = Graph.from_edges(6, [(0, 4), (0, 5), (1, 3), (1, 4), (1, 5), (2, 3), (2, 5), (3, 4)])
    assert (best_spanning_tree(graph).diameter, minimum_diameter_tree(graph).diameter) == (4, 3)


def test_the_best_of_the_papers_social_trees_is_as_narrow_as_any():
    assert best_spanning_tree(davis_southern_women()).diameter == 5
    assert minimum_diameter_tree(davis_southern_women()).diameter == 5


def test_a_tree_spans_itself():
    tree = kary_tree(10, 3)
    assert spanning_tree(tree, 7) == best_spanning_tree(tree) == minimum_diameter_tree(tree) == tree


@given(links())
@settings(max_examples=60)
def test_measured_trees_are_the_best_of_all(seconds):
    graph = Graph.from_edges(len(seconds), [(int(i), int(j)) for i, j in np.argwhere(np.isfinite(seconds)) if i < j])
    costs = [(tree.diameter, slowest_edge(tree, seconds)) for tree in every_spanning_tree(graph)]
    delay, time, product = (measured_tree(seconds, objective) for objective in ("delay", "time", "product"))
    assert (delay.diameter, slowest_edge(delay, seconds)) == min(costs)
    assert (slowest_edge(time, seconds), time.diameter) == min((slow, wide) for wide, slow in costs)
    assert product.diameter * slowest_edge(product, seconds) == min(slow * wide for wide, slow in costs)


def test_the_three_objectives_choose_three_trees():
    seconds = np.full((6, 6), np.inf)

    def link(i, j, cost):
        seconds[i, j] = seconds[j, i] = cost

    for i in range(5):
        link(i, i + 1, 1.0)  # a fast chain
        link(i, 5, min(seconds[i, 5], 20.0))  # a slow star
    for i, j in ((1, 3), (1, 4), (3, 5)):
        link(i, j, min(seconds[i, j], 1.5))  # short cuts
    found = {name: measured_tree(seconds, name) for name in ("delay", "time", "product")}
    assert {name: (tree.diameter, slowest_edge(tree, seconds)) for name, tree in found.items()} == {
        "delay": (2, 20.0),
        "time": (5, 1.0),
        "product": (3, 1.5),
    }


def test_link_seconds_are_those_of_the_slower_direction():
    seconds = link_seconds([[0, 1e-3], [2e-3, 0]], [[1, 1e6], [1e6, 1]], nbytes=1e6)
    assert seconds.tolist() == [[0.0, 1.002], [1.002, 0.0]]
    nowhere = link_seconds(np.zeros((3, 3)), [[0, 5, 0], [5, 0, 5], [0, 5, 0]], nbytes=10)
    assert measured_tree(nowhere) == chain(3)


def test_one_node_needs_no_link():
    assert measured_tree([[0.0]]) == Tree(((),))
    assert slowest_edge(Tree(((),)), [[0.0]]) == 0.0


@pytest.mark.parametrize(
    "seconds, message",
    [
        ([1.0, 2.0], r"must be a square matrix, a row for each node; got shape \(2,\)"),
        (np.zeros((0, 0)), r"got shape \(0, 0\)"),
        ([[0, 0], [0, 0]], r"seconds\[0, 1\] is 0.0: wanted a positive number, or inf where there is no link"),
        ([[0, np.nan], [1, 0]], r"seconds\[0, 1\] is nan"),
        ([[0, 1], [2, 0]], r"seconds\[0, 1\] is 1 and seconds\[1, 0\] is 2: give the slower one for both"),
        ([[0, np.inf], [np.inf, 0]], "don't connect all nodes: measure more of them"),
        ([[0, 1, np.inf], [1, 0, np.inf], [np.inf, np.inf, 0]], "don't connect all nodes"),
    ],
)
def test_seconds_that_can_not_be_are_refused(seconds, message):
    with pytest.raises(TopologyError, match=message):
        measured_tree(seconds)


def test_an_unknown_objective_and_root_are_refused():
    with pytest.raises(TopologyError, match="objective must be one of delay, time, product, got 'speed'"):
        measured_tree([[0, 1], [1, 0]], "speed")
    with pytest.raises(TopologyError, match="no node 4 in a graph of 4"):
        spanning_tree(ring(4), 4)
    with pytest.raises(TopologyError, match="must be square matrices"):
        link_seconds([0, 1], [1, 1], 8)


def test_measured_trees_of_a_rack_are_found_in_a_moment():
    random = np.random.default_rng(0)
    seconds = random.uniform(1e-3, 1e-1, (24, 24))
    seconds = np.maximum(seconds, seconds.T)
    tree = measured_tree(seconds)
    assert tree.size == 24
    assert tree.diameter * slowest_edge(tree, seconds) <= 2 * seconds.max(axis=1).min()  # the best star
