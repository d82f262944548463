"""How late news arrives by relay along a tree, what that does to learning rates, and the mixing matrix of the theory.

`synchronous` messages are used in the step in which they are sent, so that neighbours are not late at all; `overlapped`
ones travel during the next step's gradient, and are used in it.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .graph import Graph

Timing = Literal["synchronous", "overlapped"]
Matrix = npt.NDArray[np.float64]


def hops(graph: Graph) -> npt.NDArray[np.int64]:
    """Return the distances between all nodes: int64[n, n].

    >>> hops(Graph(((1,), (0, 2), (1,)))).tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    return np.array([graph.distances(node) for node in range(graph.size)], dtype=np.int64)


def delays(graph: Graph, timing: Timing = "synchronous") -> npt.NDArray[np.int64]:
    """Return by how many steps the news of node j is late at node i: int64[n, n].

    synchronous max(0, hops − 1); overlapped hops. Source: Vogels et al. 2021, whose text has the second and whose
    Algorithm 1 the first.

    >>> delays(Graph(((1,), (0, 2), (1,)))).tolist()
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    if timing not in ("synchronous", "overlapped"):
        raise TopologyError(f"timing must be synchronous or overlapped, got {timing!r}")
    return np.maximum(0, hops(graph) - (timing == "synchronous"))


def mean_delay(graph: Graph, timing: Timing = "synchronous") -> float:
    """Return the mean over all pairs (i, j), i = j among them, of the delay in steps."""
    return float(delays(graph, timing).mean())


def correction(graph: Graph, timing: Timing = "synchronous") -> float:
    """Return κ = 1 + mean delay: RelaySGD needs κ times the learning rate of an all-reduce.

    A delayed mean keeps a sum over a history of models, so that an update that all make once ends up 1/κ as large.

    >>> correction(Graph(((1,), (0, 2), (1,))), "overlapped")
    1.8888888888888888
    """
    return 1 + mean_delay(graph, timing)


def mixing_matrix(graph: Graph) -> Matrix:
    """Return W of the theory of RelaySGD: float64[n(τ+1), n(τ+1)], with τ the diameter.

    It acts on the models of the last τ+1 steps, the newest in block 0. Block row 0 has 1/n at column (block τ_ij, j), the
    overlapped delay; below it, identities shift the history. Rows add up to 1. Source: Vogels et al. 2021, appendix.

    >>> mixing_matrix(Graph(((1,), (0,)))).tolist()
    [[0.5, 0.0, 0.0, 0.5], [0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    late = delays(graph, "overlapped")
    n, blocks = graph.size, int(late.max()) + 1
    matrix = np.eye(n * blocks, k=-n)
    i, j = np.indices((n, n))
    matrix[i, n * late + j] = 1 / n
    return matrix


def stationary(matrix: Matrix) -> npt.NDArray[np.float64]:
    """Return the π >= 0 with πW = π that adds up to 1; the first n entries of it add up to 1/κ, overlapped."""
    equations = np.vstack([matrix.T - np.eye(len(matrix)), np.ones(len(matrix))])
    found: npt.NDArray[np.float64] = np.linalg.lstsq(equations, np.eye(len(equations))[-1], rcond=None)[0]
    return found


def second_eigenvalue(matrix: Matrix) -> float:
    """Return |λ₂|, the second largest magnitude of an eigenvalue, at whose rate models come together; 0 for 1 × 1."""
    magnitudes = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(magnitudes[-2]) if len(magnitudes) > 1 else 0.0


def rate(matrix: Matrix, longest: int = 100) -> float:
    """Return the smallest ρ = m/p for which ‖Wᵐ − W∞‖² <= (1−p)²ᵐ ‖W − W∞‖², in the spectral norm; inf where none is.

    m is below `longest`, and the search ends after ten that don't make ρ smaller. W∞ is the limit of the powers of W.
    Source: Vogels et al. 2021, key lemma and Figure 5.
    """
    limit = np.outer(np.ones(len(matrix)), stationary(matrix))
    power, start = matrix, np.linalg.norm(matrix - limit, 2)
    best, since = float("inf"), 0
    for m in range(1, longest):
        p = 1 - float(np.linalg.norm(power - limit, 2) / start) ** (1 / m) if start > 0 else 1.0
        since = 0 if p > 0 and m / p < best else since + (best < float("inf"))
        best = min(best, m / p) if p > 0 else best
        if since == 10:
            break
        power = power @ matrix
    return best
