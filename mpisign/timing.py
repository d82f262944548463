"""Where the seconds of a step go."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by phase. Phases nest: the inner one's seconds are not the outer one's.

    >>> watch = Stopwatch()
    >>> with watch("communicate"):
    ...     with watch("vote"):
    ...         pass
    >>> sorted(watch.seconds)
    ['communicate', 'vote']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._phase, self._since = "", 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Charge the time of the block to `phase`."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, phase: str) -> str:
        now, before = time.perf_counter(), self._phase
        if before:
            self.seconds[before] += now - self._since
        self._phase, self._since = phase, now
        return before
