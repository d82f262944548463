"""Who talks to whom, as data: trees, graphs, digraphs, and how to build them. No communicator, no torch.

Gossip weights stand in `weights`, delays and the mixing matrix in `delays`, spanning trees in `spanning`: they import NumPy.
"""

from .builders import binary_tree, chain, double_binary_trees, kary_tree, mirrored, star
from .digraph import Digraph
from .exponential import OnePeerExponential, exponential
from .graph import Graph
from .graphs import complete, grid, hypercube, ring, torus
from .spec import Topology, parse, size_of
from .tree import Tree

__all__ = [
    "Digraph",
    "Graph",
    "OnePeerExponential",
    "Topology",
    "Tree",
    "binary_tree",
    "chain",
    "complete",
    "double_binary_trees",
    "exponential",
    "grid",
    "hypercube",
    "kary_tree",
    "mirrored",
    "parse",
    "ring",
    "size_of",
    "star",
    "torus",
]
