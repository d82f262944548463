"""Step sizes for curves to be compared at: the one that is fastest to a target, and the one whose plateau lies at it.

Both take `run`, which starts a run with a step size and yields its error before step 0, 1, 2, …; they follow it at test
points that are dense at first and sparse later. Source: Vogels et al. 2021, appendix B.4 and the tuning of their code.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch

Run = Callable[[float], Iterable[float]]

_ROUNDS = 30
_PLATEAU = 3  # test points


@dataclass(frozen=True)
class Tuned:
    """The best step size found and the test point at which it got there; both None where none did."""

    steps: int | None = None
    lr: float | None = None

    def faster(self, steps: int) -> bool:
        """Tell whether `steps` are fewer."""
        return self.steps is None or steps < self.steps


@dataclass(frozen=True)
class _End:
    """How a run ended: its step size is too large or too small, or it `reached` the target or a plateau of this error."""

    verdict: Literal["large", "small", "reached", "plateau"]
    step: int
    error: float = math.nan


def sampled_steps(most: int, count: int = 1000) -> set[int]:
    """Return at most `count` steps from 1 to `most`, equally spaced in their logarithm, as whole numbers without doubles."""
    points = torch.logspace(0, math.log2(most), count, base=2, dtype=torch.float64)
    return set(points.round().long().tolist())


def tune_fastest(run: Run, target: float, start: float = 10.0, most: int = 20_000, rising: bool = False) -> Tuned:
    """Return the step size that brings the error below `target` in the fewest steps without ever rising above it.

    Halves from 2·start until a run succeeds and halving again gains nothing, then halves the interval round the best.
    The paper's code records half of the step size that it found: its figures are those returned here, divided by 2.

    Args:
        run: step size -> errors.
        target: of the error.
        start: half of the largest step size tried.
        most: steps at which a run is given up.
        rising: whether an error above the target may rise.
    """
    best, low, high, lr = Tuned(), math.nan, 2 * start, 2 * start
    for _ in range(_ROUNDS):
        bracketed = not math.isnan(low)
        if bracketed and high - low <= 1e-4:
            break
        if bracketed:
            lr = (low + high) / 2
        end = _follow(run(lr), most, target / 10, target, rising, best.steps)
        if end.verdict == "reached" and best.faster(end.step):
            best = Tuned(end.step, lr)
            lr /= 2
        elif end.verdict == "reached":
            low, high = min(lr, high), min(4 * lr, high)
        elif end.verdict == "small":
            low = min(lr, high)
        else:
            high = max(lr, low) if bracketed else lr
            lr /= 2
    return best


def tune_plateau(run: Run, target: float, start: float = 100.0, most: int = 20_000) -> Tuned:
    """Return the step size whose error settles closest below `target`; for methods that settle the lower, the smaller it is.

    A plateau is three test points within target/100 of their mean; one between target/1.1 and target ends the search.
    Arguments as in `tune_fastest`.
    """
    best, low, high = Tuned(), math.nan, 2 * start
    for _ in range(_ROUNDS):
        bracketed = not math.isnan(low)
        if bracketed and high - low <= 1e-6:
            break
        lr = (low + high) / 2 if bracketed else high / 2
        end = _follow(run(lr), most, target / 100, None, False, best.steps, target)
        if end.verdict == "plateau" and end.error < target and best.faster(end.step):
            best = Tuned(end.step, lr)
        if end.verdict == "plateau" and target / 1.1 < end.error < target:
            break
        if end.verdict == "large" or (end.verdict == "plateau" and end.error > target):
            high = max(lr, low) if bracketed else lr
        else:
            low = min(lr, high)
    return best


def _follow(
    errors: Iterable[float],
    most: int,
    flat: float,
    target: float | None,
    rising: bool,
    best: int | None,
    ceiling: float | None = None,
) -> _End:
    """Follow a run until something is known: `target` None asks for a plateau, else a plateau is a failure."""
    points, seen = sampled_steps(most), list[float]()
    ceiling = target if ceiling is None else ceiling
    assert ceiling is not None
    for step, error in _at(errors, points):
        seen.append(error)
        if target is not None and error < target:
            return _End("reached", step)
        if best is not None and step > 10 * best:
            return _End("small", step)
        if math.isnan(error) or error > seen[0]:
            return _End("large", step)
        if len(seen) > 1 and error > seen[-2] and error > ceiling and not rising:
            return _End("large", step)
        last = seen[-_PLATEAU:]
        mean = sum(last) / len(last)
        if len(last) == _PLATEAU and all(abs(e - mean) < flat for e in last):
            return _End("plateau", step, mean)
    return _End("small", most)


def _at(errors: Iterable[float], points: set[int]) -> Iterator[tuple[int, float]]:
    last = max(points)
    for step, error in enumerate(errors):
        if step in points and step < last:
            yield step, error
        if step >= last:
            return
