"""The usual trees: chain, star, binary, double binary and k-ary."""

from ..errors import TopologyError
from .checks import check_size
from .tree import Tree


def chain(n: int) -> Tree:
    """Return 0-1-2-…-(n−1): the longest delays there are, and two neighbours at most.

    >>> chain(4).diameter
    3
    """
    return _from_parents([None, *range(n - 1)], n)


def star(n: int, center: int = 0) -> Tree:
    """Return `center` with all others as its neighbours: the shortest delays, and one node that does all the work.

    >>> star(4, center=2).neighbors
    ((2,), (2,), (0, 1, 3), (2,))
    """
    check_size(n, "tree")
    if center not in range(n):
        raise TopologyError(f"center {center} is no node of a star of {n}: choose one of 0 to {n - 1}")
    return Tree.from_edges(n, [(center, node) for node in range(n) if node != center])


def binary_tree(n: int) -> Tree:
    """Return the binary tree in which node k >= 1 has parent k div 2, so that node 0 hangs on node 1 alone.

    Source: Vogels et al. 2021, the first of the double binary trees of their code.

    >>> binary_tree(6).edges
    ((0, 1), (1, 2), (1, 3), (2, 4), (2, 5))
    """
    return _from_parents([None, *(k // 2 for k in range(1, n))], n)


def mirrored(tree: Tree) -> Tree:
    """Return the tree with node w renamed to size−1−w.

    >>> mirrored(star(3)) == star(3, center=2)
    True
    """
    last = tree.size - 1
    return Tree(tuple(tuple(last - neighbor for neighbor in each) for each in reversed(tree.neighbors)))


def double_binary_trees(n: int) -> tuple[Tree, Tree]:
    """Return the binary tree and its mirror image: what has three neighbours in one is mostly a leaf in the other.

    With half of each vector on either tree, a node sends and receives about two vectors a step, whatever n is. The two
    may share an edge: for n = 16 it is 5-10. Source: Vogels et al. 2021.
    """
    tree = binary_tree(n)
    return tree, mirrored(tree)


def kary_tree(n: int, degree: int = 3) -> Tree:
    """Return the tree in which no node has more than `degree` >= 2 neighbours, filled breadth first from node 0.

    Node 0 has `degree` children and every other node degree−1, as far as n goes.

    >>> kary_tree(6, 3).edges
    ((0, 1), (0, 2), (0, 3), (1, 4), (1, 5))
    """
    if degree < 2:
        raise TopologyError(f"a tree of degree {degree} can't grow: a node needs at least 2 neighbours")
    return _from_parents([None, *(0 if k <= degree else 1 + (k - degree - 1) // (degree - 1) for k in range(1, n))], n)


def _from_parents(parents: list[int | None], n: int) -> Tree:
    check_size(n, "tree")
    return Tree.from_edges(n, [(parent, node) for node, parent in enumerate(parents) if parent is not None])
