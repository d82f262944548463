"""How long to wait for the last of several that are usually in time."""

import statistics
from collections import deque

FLOOR = 0.5
"""Seconds that a deadline has at least: an operating system may keep a process waiting for some tenths."""

WINDOW = 64
"""Waits that are remembered."""

KNOWN = 8
"""Waits that must be known before they decide."""


class Deadline:
    """Adapts to what is measured: max(FLOOR, median + patience · median |wait − median|), of the last WINDOW waits.

    Medians, since a few waits that were long for another reason must not lengthen those to come.

    Args:
        patience: how many times the spread above the median is still in time.
        first: the deadline in seconds until KNOWN waits are known: the first steps compile, and fill caches.
    """

    def __init__(self, patience: float = 20.0, first: float = 30.0) -> None:
        self._patience, self._first = patience, first
        self._waits: deque[float] = deque(maxlen=WINDOW)

    def note(self, seconds: float) -> None:
        """Remember how long the last one was waited for, in a round in which all came."""
        self._waits.append(seconds)

    @property
    def seconds(self) -> float:
        """How long to wait for the last one now."""
        if len(self._waits) < KNOWN:
            return self._first
        median = statistics.median(self._waits)
        spread = statistics.median(abs(wait - median) for wait in self._waits)
        return max(FLOOR, median + self._patience * spread)
