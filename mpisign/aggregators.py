"""From the vectors of several workers to one, some of them perhaps liars': plain functions float32[n, d] -> float32[d].

Rows are finite and stand in rank order; no function changes them. A row for each worker that takes part: n may be smaller
than the number of ranks.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from . import registry
from .errors import ParameterError, QuorumError

Aggregator = Callable[[Tensor], Tensor]


def build(aggregator: str | Aggregator) -> Aggregator:
    """Return what `--aggregator` calls so ("krum:2", "my_file.py:mine:3"), as a function of the rows alone.

    Errors: ConfigError for a name that doesn't exist, ParameterError for what can't be called.
    """
    arguments: list[int | float | str] = []
    function = aggregator
    if isinstance(aggregator, str):
        name, arguments = registry.split("aggregator", aggregator)
        function = registry.load("aggregator", name)
    if not callable(function):
        raise ParameterError(
            f"aggregator {aggregator}: wanted a function float32[n, d] -> float32[d], got {function!r}"
        )
    return lambda rows: function(rows, *arguments)


def mean(rows: Tensor) -> Tensor:
    """Return the mean: added in float32 in rank order, then divided. One liar decides it."""
    return _sum(rows).div_(len(rows))


def median(rows: Tensor) -> Tensor:
    """Return the median of each coordinate; of an even number, half way between the two in the middle.

    Up to (n−1)/2 liars, rounded down, leave it within the honest values (Yin, Chen, Ramchandran, Bartlett 2018).
    """
    ordered, middle = rows.sort(dim=0).values, len(rows) // 2
    if len(rows) % 2:
        return ordered[middle].clone()
    return ordered[middle - 1] / 2 + ordered[middle] / 2  # halves first: the sum of two finite numbers may be infinite


def trimmed_mean(rows: Tensor, share: float) -> Tensor:
    """Return the mean of each coordinate without its floor(share·n) smallest and as many largest values (Yin et al. 2018).

    The values are added from the smallest on. `share` is in [0, 0.5); up to floor(share·n) liars do no harm.
    Errors: ParameterError for another share.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 0.5:
        raise ParameterError(f"trimmed_mean needs a share of at least 0 and below 0.5, got {share!r}")
    cut = int(Fraction(repr(share)) * len(rows))  # as it was typed: 0.29·100 is below 29
    return mean(rows.sort(dim=0).values[cut : len(rows) - cut])


def krum(rows: Tensor, liars: int) -> Tensor:
    """Multi-Krum: the mean of the n − f workers that have the nearest neighbours (Blanchard et al. 2017).

        score_i = Σ of the n − f − 2 smallest ‖v_i − v_j‖² over j ≠ i;   the mean of the n − f smallest scores

    Of equal scores the lower rank goes first; distances are added in float64. `liars` is f.
    Errors: QuorumError where n < 2f + 3; ParameterError where f is no whole number of at least 0.
    """
    if isinstance(liars, bool) or not isinstance(liars, int) or liars < 0:
        raise ParameterError(f"krum needs a whole number of liars of at least 0, got {liars!r}")
    n = len(rows)
    if n < 2 * liars + 3:
        raise QuorumError(
            f"krum:{liars} needs at least {2 * liars + 3} workers (2f + 3), got {n}: start more, or expect fewer liars"
        )
    near = np.sort(squared_distances(rows), axis=1)[:, 1 : n - liars - 1]  # column 0 is the distance to oneself
    best = np.argsort(near.sum(axis=1), kind="stable")[: n - liars]
    return mean(rows[torch.from_numpy(np.sort(best))])


def squared_distances(rows: Tensor) -> np.ndarray:
    """float32[n, d] -> float64[n, n]. NumPy adds in an order of its own, but the same for any number of threads."""
    vectors = rows.numpy()
    distances = np.zeros((len(vectors), len(vectors)))
    for i, one in enumerate(vectors):
        for j, other in enumerate(vectors[:i]):
            apart = np.subtract(one, other, dtype=np.float64)
            distances[i, j] = distances[j, i] = np.square(apart, out=apart).sum()
    return distances


def _sum(rows: Tensor) -> Tensor:
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total
