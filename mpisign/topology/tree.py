"""A tree of ranks as data: one way from each to each, so that what is relayed arrives once."""

from dataclasses import dataclass

from .checks import check_acyclic, check_node, check_symmetric, checked_neighbors
from .graph import Graph
from .search import Parents, breadth_first

__all__ = ["Parents", "Tree"]


@dataclass(frozen=True)
class Tree(Graph):
    """A graph without cycles: size−1 edges, and a single path between any two nodes.

    Raises:
        TopologyError: what is no Graph; a cycle, round which a relayed message would run for ever.

    >>> tree = Tree(((1,), (0, 2), (1,)))
    >>> tree.edges, tree.diameter, tree.path(0, 2)
    (((0, 1), (1, 2)), 2, (0, 1, 2))
    """

    def __post_init__(self) -> None:
        neighbors = checked_neighbors(self.neighbors, self._kind())
        check_symmetric(neighbors)
        check_acyclic(neighbors)
        super().__post_init__()

    def rooted(self, root: int) -> Parents:
        """Return each node's parent in the tree rooted at `root`, and None for the root.

        >>> Tree.from_edges(3, [(0, 1), (1, 2)]).rooted(1)
        (1, None, 1)
        """
        check_node(root, self.size, self._kind())
        found = breadth_first(self.neighbors, root)
        return tuple(found[node] for node in range(self.size))
