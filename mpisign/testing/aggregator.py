"""The contract of an aggregator."""

from collections.abc import Sequence

import numpy as np
import torch

from ..aggregators import Aggregator
from .checks import require


def check_aggregator(aggregate: Aggregator, workers: Sequence[int] = (7, 8, 11)) -> None:
    """Check an aggregator, float32[n, d] -> float32[d], finite for finite rows, with so many workers.

    It does not change its rows; the same rows give the same bits; equal workers give what one gives; every coordinate lies
    between the smallest and the largest of the rows; who has which rank makes no difference.
    """
    for n in workers:
        for numel in (0, 1, 64, 65):
            random = np.random.default_rng(n)
            rows = torch.from_numpy(random.standard_normal((n, numel)).astype(np.float32))
            before, where = rows.clone(), f"{n} workers, {numel} coordinates"
            result = aggregate(rows)
            require(torch.equal(rows, before), f"{where}: it changed its rows")
            fits = result.dtype == torch.float32 and result.shape == (numel,) and bool(result.isfinite().all())
            require(fits, f"{where}: wanted finite float32[{numel}], got {result.dtype}{list(result.shape)}")
            require(torch.equal(aggregate(rows), result), f"{where}: other bits for the same rows")
            near = 1e-6 * n  # sums of n numbers of about 1, rounded to float32 each time
            inside = (result >= rows.amin(0) - near) & (result <= rows.amax(0) + near)
            require(bool(inside.all()), f"{where}: the result is outside of what the workers say")
            equal = aggregate(rows[:1].repeat(n, 1))
            require(bool(((equal - rows[0]).abs() <= near).all()), f"{where}: equal workers give something else")
            other = aggregate(rows[torch.from_numpy(random.permutation(n))])
            require(
                bool(((other - result).abs() <= near).all()), f"{where}: ranks in another order give something else"
            )
