"""How the learning rate changes in a run: a factor for each step, of the epoch it falls into."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from .errors import ConfigError

DROP = 0.1
"""What `step` multiplies by at each drop."""


@dataclass(frozen=True)
class Schedule:
    """A schedule that was parsed.

    Attributes:
        kind: constant, cosine or step.
        drops: for step: the epochs at which the rate drops, or a single one, at whose multiples it does.
    """

    kind: str
    drops: tuple[int, ...] = ()

    def factor(self, epoch: float, epochs: float) -> float:
        """Return the factor at a time 0 <= epoch < epochs, counted in epochs.

        >>> Schedule("step", (30,)).factor(65.0, 90), Schedule("step", (150, 180)).factor(160.0, 200)
        (0.010000000000000002, 0.1)
        """
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.kind == "step":
            passed = int(epoch) // self.drops[0] if len(self.drops) == 1 else sum(epoch >= drop for drop in self.drops)
            return float(DROP**passed)
        return 1.0


def parse_schedule(spec: str, where: str = "") -> Schedule:
    """Return the schedule that a text names: constant, cosine, step:30 (each 30 epochs) or step:150,180 (at these).

    Errors: ConfigError, which begins with `where`, for any other text.

    >>> parse_schedule("step:150,180")
    Schedule(kind='step', drops=(150, 180))
    """
    kind, colon, numbers = spec.partition(":")
    if kind in ("constant", "cosine") and not colon:
        return Schedule(kind)
    drops = numbers.split(",")
    if kind == "step" and all(drop.isascii() and drop.isdigit() and 0 < int(drop) < 10**9 for drop in drops):
        ordered = tuple(map(int, drops))
        if list(ordered) == sorted(set(ordered)):
            return Schedule("step", ordered)
    raise ConfigError(
        f"{where or f'--schedule {spec}'}: wanted constant, cosine, step:30 (a tenth each 30 epochs), or step:150,180 (a "
        f"tenth at these, in ascending order)"
    )


def factors(spec: str, warm_up: float, steps_per_epoch: int, epochs: float) -> Callable[[int], float]:
    """Return the function from a step's number, from 0 on, to its factor.

    The first warm_up · steps_per_epoch steps are on a line from near 0 to the schedule: step t has (t+1) parts of it.
    """
    schedule, rise = parse_schedule(spec), warm_up * steps_per_epoch

    def factor(step: int) -> float:
        risen = min((step + 1) / rise, 1.0) if rise else 1.0
        return risen * schedule.factor(step / steps_per_epoch, epochs)

    return factor
