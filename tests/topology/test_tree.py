import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpisign.errors import TopologyError
from mpisign.topology import Tree, chain


@st.composite
def trees(draw, largest=24):
    size = draw(st.integers(1, largest))
    names = draw(st.permutations(range(size)))
    return Tree.from_edges(size, [(names[draw(st.integers(0, k - 1))], names[k]) for k in range(1, size)])


@given(trees(largest=12))
def test_distance_is_a_metric(tree):
    nodes = range(tree.size)
    for i in nodes:
        assert tree.distance(i, i) == 0
        assert all(tree.distance(i, j) >= 1 for j in nodes if j != i)
        assert all(tree.distance(i, j) == tree.distance(j, i) for j in nodes)
        assert all(tree.distance(i, k) <= tree.distance(i, j) + tree.distance(j, k) for j in nodes for k in nodes)


@given(trees())
def test_a_path_walks_over_edges_from_one_end_to_the_other_and_meets_no_node_twice(tree):
    for i in range(tree.size):
        for j in range(tree.size):
            path = tree.path(i, j)
            assert (path[0], path[-1]) == (i, j)
            assert len(set(path)) == len(path) == tree.distance(i, j) + 1
            assert all(b in tree.neighbors[a] for a, b in itertools.pairwise(path))
            assert path == tree.path(j, i)[::-1]


@given(trees())
def test_the_diameter_is_the_longest_distance(tree):
    assert tree.diameter == max(tree.distance(i, j) for i in range(tree.size) for j in range(tree.size))


@given(trees())
def test_edges_are_one_fewer_than_nodes_and_make_the_same_tree_again(tree):
    assert len(tree.edges) == tree.size - 1
    assert list(tree.edges) == sorted(tree.edges)
    assert Tree.from_edges(tree.size, tree.edges) == tree
    assert Tree.from_edges(tree.size, [(j, i) for i, j in reversed(tree.edges)]) == tree


@given(trees())
def test_the_degrees_add_up_to_twice_the_edges(tree):
    assert sum(map(len, tree.neighbors)) == 2 * (tree.size - 1)
    assert tree.degree == max(len(each) for each in tree.neighbors)


@given(trees(), st.data())
def test_renumbering_moves_distances_paths_and_edges_along(tree, data):
    names = data.draw(st.permutations(range(tree.size)))
    renumbered = Tree.from_edges(tree.size, [(names[i], names[j]) for i, j in tree.edges])
    assert renumbered.diameter == tree.diameter
    assert renumbered.degree == tree.degree
    for i in range(tree.size):
        for j in range(tree.size):
            assert renumbered.path(names[i], names[j]) == tuple(names[node] for node in tree.path(i, j))


@given(trees(), st.data())
def test_in_a_rooted_tree_the_parents_lead_to_the_root_by_the_shortest_way(tree, data):
    root = data.draw(st.integers(0, tree.size - 1))
    parents = tree.rooted(root)
    assert parents[root] is None
    for node in range(tree.size):
        hops, at = 0, node
        while at != root:
            at, hops = parents[at], hops + 1
        assert hops == tree.distance(node, root)


def test_one_node_is_a_tree():
    tree = Tree(((),))
    assert (tree.size, tree.edges, tree.degree, tree.diameter) == (1, (), 0, 0)
    assert tree.path(0, 0) == (0,)
    assert tree.rooted(0) == (None,)


def test_two_nodes_are_a_tree():
    tree = Tree(((1,), (0,)))
    assert (tree.size, tree.edges, tree.degree, tree.diameter) == (2, ((0, 1),), 1, 1)
    assert tree.rooted(1) == (1, None)


def test_neighbours_are_kept_in_ascending_order_so_that_equal_trees_are_equal():
    assert Tree(((2, 1), (0,), (0,))) == Tree(((1, 2), (0,), (0,)))
    assert hash(Tree(((2, 1), (0,), (0,)))) == hash(Tree(((1, 2), (0,), (0,))))


def test_lists_do_for_tuples():
    assert Tree([[1], [0]]) == Tree(((1,), (0,)))


def test_a_tree_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        chain(3).neighbors = ()


@pytest.mark.parametrize(
    "neighbors, message",
    [
        ((), "at least 1 node, got 0"),
        (((1,), ()), r"node 0 names neighbour 1, but 1 doesn't name 0: add it there, or leave it out here"),
        (((0,),), "node 0 is its own neighbour: leave the edge 0-0 out"),
        (((1, 1), (0,)), "node 0 names neighbour 1 2 times: name it once"),
        (((1,), (0, 2)), "node 1 names neighbour 2, but the nodes are 0 to 1"),
        (((-1,), (0,)), "node 0 names neighbour -1, but the nodes are 0 to 1"),
        (((0.5,), (0,)), "node 0 names neighbour 0.5, but the nodes are 0 to 1"),
        (((1, 2), (0, 2), (0, 1)), "edge 1-2 closes a cycle: leave out one edge of it"),
        (((1,), (0,), (3,), (2,)), "node 2 can't be reached from node 0: add an edge that joins the two parts"),
        (((1,), (0,), (3, 4), (2, 4), (2, 3)), "edge 3-4 closes a cycle"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_place_and_the_remedy(neighbors, message):
    with pytest.raises(TopologyError, match=message):
        Tree(neighbors)


@pytest.mark.parametrize(
    "size, edges, message",
    [
        (0, [], "at least 1 node, got 0"),
        (3, [(0, 1), (1, 3)], "edge 1-3: the nodes of a tree of 3 are 0 to 2"),
        (3, [(0, 1), (1, 0)], "edge 1-0 is given twice"),
        (2, [(0, 0)], "node 0 is its own neighbour: leave the edge 0-0 out"),
        (3, [(0, 1)], "node 2 can't be reached"),
        (3, [(0, 1), (1, 2), (2, 0)], "edge 1-2 closes a cycle"),
    ],
)
def test_edges_that_make_no_tree_are_refused(size, edges, message):
    with pytest.raises(TopologyError, match=message):
        Tree.from_edges(size, edges)


def test_a_tree_of_thousands_is_measured_at_once():
    tree = chain(4000)
    assert (tree.diameter, tree.distance(1, 3999)) == (3999, 3998)


@pytest.mark.parametrize("node", [-1, 3])
def test_a_question_about_no_node_is_refused(node):
    for ask in (lambda: chain(3).distance(0, node), lambda: chain(3).path(node, 0), lambda: chain(3).rooted(node)):
        with pytest.raises(TopologyError, match=f"no node {node} in a tree of 3: its nodes are 0 to 2"):
            ask()
