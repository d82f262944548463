"""Who talks to whom, as data: trees and how to build them. No communicator, no torch."""

from .builders import binary_tree, chain, double_binary_trees, kary_tree, mirrored, star
from .tree import Tree

__all__ = ["Tree", "binary_tree", "chain", "double_binary_trees", "kary_tree", "mirrored", "star"]
