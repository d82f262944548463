"""The contract of a partition."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .checks import RANKS, require


def check_partition(deal: Callable[..., Sequence[Any]], argument: float | None = None) -> None:
    """Check a partition, `deal(labels, workers, seed, argument)`: samples equally often, and the same for the same seed."""
    labels = np.random.default_rng(0).integers(10, size=2003)
    for workers in RANKS:
        parts, again = deal(labels, workers, 1, argument), deal(labels, workers, 1, argument)
        require(len(parts) == workers, f"{len(parts)} parts for {workers} workers")
        require(
            len(set(np.bincount(np.concatenate(parts), minlength=len(labels)).tolist())) == 1,
            "some samples are missing, or dealt more often than others",
        )
        require(all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True)), "the same seed deals otherwise")
