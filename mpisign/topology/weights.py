"""Gossip matrices: with what weights a node averages its neighbours' vectors, and how fast that spreads.

A matrix W is float64[n, n], and x ← Wx is a round of gossip: row i holds the weights that node i uses.
"""

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .digraph import Digraph
from .graph import Graph

Matrix = npt.NDArray[np.float64]

_ROUNDING = 1e-9  # of sums of up to thousands of weights in float64, and of weights typed with ten digits


def metropolis_hastings(graph: Graph) -> Matrix:
    """Return w_ij = 1/(1 + max(deg_i, deg_j)) for neighbours, and what is left to 1 on the diagonal.

    Symmetric, so that the mean is kept; 1/3 each in a ring. Source: Metropolis et al. 1953; Xiao, Boyd and Lall 2005.

    >>> metropolis_hastings(Graph(((1,), (0, 2), (1,)))).round(2).tolist()
    [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33], [0.0, 0.33, 0.67]]
    """
    weights = np.zeros((graph.size, graph.size))
    for i, j in graph.edges:
        weights[i, j] = weights[j, i] = 1 / (1 + max(len(graph.neighbors[i]), len(graph.neighbors[j])))
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def lazy(weights: Matrix) -> Matrix:
    """Return (W + I)/2: half as fast, and no eigenvalue below 0 where W is symmetric. D² with it is exact diffusion.

    >>> lazy(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return (weights + np.eye(len(weights))) / 2


def checked(weights: npt.ArrayLike, graph: Graph) -> Matrix:
    """Return one's own weights as a matrix, after a check that they fit the graph.

    Errors: TopologyError unless they are n × n, finite, not negative, 0 where there is no edge, and each row and each
    column adds up to 1 (to 1e-9).
    """
    matrix = np.array(weights, dtype=np.float64)
    if matrix.shape != (graph.size, graph.size):
        raise TopologyError(f"weights of shape {matrix.shape} for {graph.size} nodes: wanted a square matrix")
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        i, j = np.argwhere(~np.isfinite(matrix) | (matrix < 0))[0]
        raise TopologyError(f"weight [{i}, {j}] is {matrix[i, j]}: wanted a number from 0 to 1")
    for i, j in np.argwhere(matrix > 0):
        if i != j and j not in graph.neighbors[i]:
            raise TopologyError(f"weight [{i}, {j}] is {matrix[i, j]:g}, but {i} and {j} are no neighbours: wanted 0")
    for axis, name in ((1, "row"), (0, "column")):
        sums = matrix.sum(axis=axis)
        worst = int(np.abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > _ROUNDING:
            raise TopologyError(
                f"{name} {worst} of the weights adds up to {sums[worst]:.10g}: wanted 1 for every row and column, or "
                f"gossip would change the mean"
            )
    return matrix


def push_sum(digraph: Digraph) -> Matrix:
    """Return w_ij = 1/(1 + out-degree of j) where j sends to i or is i: what push-sum sends, each column adding up to 1.

    Rows don't add up to 1, which is why push-sum divides by a weight that is gossiped alike. Source: Kempe et al. 2003.

    >>> push_sum(Digraph(((1, 2), (0,), (0,)))).round(2).tolist()
    [[0.33, 0.5, 0.5], [0.33, 0.5, 0.0], [0.33, 0.0, 0.5]]
    """
    weights = np.zeros((digraph.size, digraph.size))
    for j, successors in enumerate(digraph.successors):
        weights[[j, *successors], j] = 1 / (1 + len(successors))
    return weights


def smallest_eigenvalue(weights: Matrix) -> float:
    """Return λ_min of a symmetric W. D² converges where it is above −1/3 only.

    Errors: TopologyError where W is not symmetric.
    """
    if not np.allclose(weights, weights.T, rtol=0, atol=_ROUNDING):
        raise TopologyError("the smallest eigenvalue is that of symmetric weights, and these are not symmetric")
    return float(np.linalg.eigvalsh(weights)[0])


def spectral_gap(weights: Matrix) -> float:
    """Return 1 − |λ₂|, where λ₂ is the eigenvalue of second largest magnitude: the part of a difference lost each round.

    1 for a single node.
    """
    magnitudes = np.sort(np.abs(np.linalg.eigvals(weights)))
    return float(1 - magnitudes[-2]) if len(magnitudes) > 1 else 1.0
