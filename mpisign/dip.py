"""Hartigan's dip: how far a sample is from any distribution with a single mode."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from . import seeding

Values = npt.NDArray[np.float64]


def dip(samples: npt.ArrayLike) -> float:
    """Return the least distance, as the largest difference of two distribution functions, to one with a single mode.

    From 1/(2n), as for n equal gaps, to ¼, as for two equal heaps far apart; 0 where all n samples are equal. It takes
    O(n log n) to sort and some passes of O(n); the result is exact up to rounding.

    Args:
        samples: at least one finite number, of any shape.

    Errors: ValueError for anything else. Source: J. A. Hartigan, P. M. Hartigan, The dip test of unimodality (1985).

    >>> dip([1, 2, 3, 4]), round(dip([0, 0.01, 0.02, 9, 9.01, 9.02]), 3)
    (0.125, 0.249)
    """
    x = np.sort(np.asarray(samples, np.float64).reshape(-1))
    if len(x) == 0 or not np.isfinite(x).all():
        raise ValueError(f"a dip needs at least one sample, and finite ones; got {len(x)} with {x.min(initial=0)}")
    places, counts = np.unique(x, return_counts=True)
    above = np.cumsum(counts) / len(x)  # F at each place
    below = above - counts / len(x)  # F just left of it
    return _dip(places, below, above)


@lru_cache(maxsize=64)
def largest_usual_dip(samples: int, share: float = 0.95, draws: int = 1000, seed: int = 0) -> float:
    """Return what the dips of so many uniform numbers stay below with probability `share`, from `draws` simulations.

    Of a wide class of noise with a single mode, uniform noise has the largest dips in the limit: a larger one speaks for more.
    Its standard error is about 1 % for the defaults. Above 500 samples it is that of 500 times √(500/samples), which is
    near the limit: 1 % of it, too. Errors: ValueError unless 0 < share < 1, samples and draws >= 1.

    >>> round(largest_usual_dip(50), 2)
    0.07
    """
    if not 0 < share < 1 or min(samples, draws) < 1:
        raise ValueError(f"wanted share in (0, 1), samples and draws of 1 or more; got {share}, {samples} and {draws}")
    random = seeding.generator(seed, seeding.SHARED, "dips of uniform numbers")
    few = min(samples, 500)
    return float(np.quantile([dip(random.random(few)) for _ in range(draws)], share) * np.sqrt(few / samples))


def _dip(x: Values, below: Values, above: Values) -> float:
    """Shrink the interval that holds the mode until the rest is farther from one mode than what is inside it."""
    first, last, found = 0, len(x) - 1, 0.0
    while first < last:
        part = slice(first, last + 1)
        convex, concave = _lower_hull(x[part], below[part]), _lower_hull(x[part], -above[part])
        low = np.interp(x[part], x[part][convex], below[part][convex])  # the greatest convex minorant of F
        high = np.interp(x[part], x[part][concave], above[part][concave])  # its least concave majorant
        gaps = high - low
        if gaps.max() <= found:
            break
        start, end = _narrower(convex, concave, gaps)
        left = above[part][:start] - low[:start]
        right = high[end + 1 :] - below[part][end + 1 :]
        found = max(found, float(left.max(initial=0)), float(right.max(initial=0)))
        first, last = first + start, first + end
    return found / 2


def _narrower(convex: list[int], concave: list[int], gaps: Values) -> tuple[int, int]:
    """From where the minorant touches F to where the majorant does, next to each other and where they are farthest apart."""
    if gaps[convex].max() > gaps[concave].max():
        start = convex[int(np.argmax(gaps[convex]))]
        return start, concave[int(np.searchsorted(concave, start))]
    end = concave[int(np.argmax(gaps[concave]))]
    return convex[int(np.searchsorted(convex, end, side="right")) - 1], end


def _lower_hull(x: Values, y: Values) -> list[int]:
    """The indices of the corners of the greatest convex function below the points."""
    hull: list[int] = []
    heights, places = y.tolist(), x.tolist()
    for index, (place, height) in enumerate(zip(places, heights, strict=True)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (heights[b] - heights[a]) * (place - places[a]) < (height - heights[a]) * (places[b] - places[a]):
                break
            hull.pop()
        hull.append(index)
    return hull
