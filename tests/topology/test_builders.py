import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpisign.errors import TopologyError
from mpisign.topology import Tree, binary_tree, chain, double_binary_trees, kary_tree, mirrored, star

BUILDERS = {
    "chain": chain,
    "star": star,
    "binary": binary_tree,
    "first of two": lambda n: double_binary_trees(n)[0],
    "second of two": lambda n: double_binary_trees(n)[1],
    "2-ary": lambda n: kary_tree(n, 2),
    "3-ary": lambda n: kary_tree(n, 3),
    "7-ary": lambda n: kary_tree(n, 7),
}


def correction(tree, delay):
    """1 + the mean over all pairs (i, j), i = j among them, of the delay after so many hops."""
    pairs = [(i, j) for i in range(tree.size) for j in range(tree.size)]
    return 1 + sum(delay(tree.distance(i, j)) for i, j in pairs) / len(pairs)


def synchronous(hops):
    return max(0, hops - 1)


def overlapped(hops):
    return hops


@pytest.mark.parametrize(
    "tree, kappa",
    [
        (chain(8), 2.75),
        (chain(16), 5.375),
        (chain(32), 10.6875),
        (binary_tree(8), 2.15625),
        (binary_tree(16), 3.3203),
        (binary_tree(32), 4.7832),
        (star(16), 1.8203),
    ],
)
def test_the_learning_rate_correction_is_the_papers(tree, kappa):
    assert correction(tree, synchronous) == pytest.approx(kappa, abs=5e-5)  # the numbers have four decimals
    assert correction(tree, overlapped) == pytest.approx(kappa + (tree.size - 1) / tree.size, abs=5e-5)


def test_a_chain_of_eighty_needs_the_correction_of_the_papers_figure():
    assert correction(chain(80), synchronous) == pytest.approx(26.67, abs=0.01)  # the figure has two decimals


def test_the_overlapped_corrections_of_sixteen_are_the_papers():
    assert correction(chain(16), overlapped) == 6.3125
    assert correction(binary_tree(16), overlapped) == pytest.approx(4.2578, abs=5e-5)


@pytest.mark.parametrize("n, diameter", [(16, 6), (32, 8), (64, 10)])
def test_double_binary_trees_are_as_deep_as_the_papers(n, diameter):
    assert [tree.diameter for tree in double_binary_trees(n)] == [diameter, diameter]


def test_in_double_binary_trees_of_sixteen_all_but_the_ends_have_four_neighbours():
    first, second = double_binary_trees(16)
    degrees = [len(a) + len(b) for a, b in zip(first.neighbors, second.neighbors, strict=True)]
    assert degrees == [2, *[4] * 14, 2]


def test_double_binary_trees_of_sixteen_share_one_edge():
    first, second = double_binary_trees(16)
    assert set(first.edges) & set(second.edges) == {(5, 10)}


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64])
def test_double_binary_trees_of_a_power_of_two_share_exactly_one_edge(n):
    first, second = double_binary_trees(n)
    assert len(set(first.edges) & set(second.edges)) == 1


@given(st.integers(1, 200))
def test_node_0_of_a_binary_tree_hangs_on_node_1_alone_and_others_on_half_their_number(n):
    parents = binary_tree(n).rooted(0)
    assert parents == (None, *(k // 2 for k in range(1, n)))
    assert len(binary_tree(n).neighbors[0]) <= 1
    assert binary_tree(n).degree <= 3


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 65])
def test_every_builder_gives_a_tree_of_n_nodes(name, n):
    tree = BUILDERS[name](n)
    assert isinstance(tree, Tree)
    assert tree.size == n


@pytest.mark.parametrize("name", BUILDERS)
def test_one_node_and_two_nodes_are_the_same_tree_for_all(name):
    assert BUILDERS[name](1) == Tree(((),))
    assert BUILDERS[name](2) == Tree(((1,), (0,)))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("n", [0, -3])
def test_no_builder_takes_fewer_than_one_node(name, n):
    with pytest.raises(TopologyError, match=f"a tree needs at least 1 node, got {n}"):
        BUILDERS[name](n)


def test_a_chain_is_as_long_as_it_can_be():
    assert chain(5).edges == ((0, 1), (1, 2), (2, 3), (3, 4))
    assert (chain(5).degree, chain(5).diameter) == (2, 4)


@pytest.mark.parametrize("center", [0, 3, 6])
def test_in_a_star_all_hang_on_its_center(center):
    tree = star(7, center)
    assert tree.neighbors[center] == tuple(node for node in range(7) if node != center)
    assert (tree.degree, tree.diameter) == (6, 2)


@pytest.mark.parametrize("center", [-1, 4])
def test_a_star_needs_a_center_that_exists(center):
    with pytest.raises(TopologyError, match=f"center {center} is no node of a star of 4: choose one of 0 to 3"):
        star(4, center)


@given(st.integers(1, 60), st.integers(2, 6))
def test_mirroring_twice_gives_the_tree_back_and_keeps_distances(n, degree):
    tree = kary_tree(n, degree)
    image = mirrored(tree)
    assert mirrored(image) == tree
    assert all(image.distance(n - 1 - i, n - 1 - j) == tree.distance(i, j) for i in range(n) for j in range(0, n, 7))


@given(st.integers(1, 100), st.integers(2, 6))
def test_a_kary_tree_keeps_to_its_degree_and_is_filled_level_by_level(n, degree):
    tree = kary_tree(n, degree)
    assert tree.degree <= degree
    parents, depths = tree.rooted(0), [tree.distance(0, node) for node in range(n)]
    assert list(parents[1:]) == sorted(parents[1:])
    assert depths == sorted(depths)
    inner = [node for node in range(n) if node in parents]
    assert all(len(tree.neighbors[node]) == degree for node in inner[:-1])  # only the last may be half full


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_full_kary_tree_holds_the_papers_number_of_nodes(degree, depth):
    full = 1 + degree * ((degree - 1) ** depth - 1) // (degree - 2)
    tree = kary_tree(full, degree)
    assert tree.diameter == 2 * depth
    assert kary_tree(full + 1, degree).diameter == 2 * depth + 1
    assert {len(each) for each in tree.neighbors} == {1, degree}


@pytest.mark.parametrize("degree", [1, 0, -1])
def test_a_tree_whose_nodes_have_one_neighbour_cannot_grow(degree):
    with pytest.raises(TopologyError, match=f"a tree of degree {degree} can't grow"):
        kary_tree(5, degree)
