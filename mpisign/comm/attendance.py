"""Which workers are there, which are away, and which may come in again."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

FORGOTTEN = 60.0
"""Seconds without being late after which a worker's lateness is forgotten."""


@dataclass
class _Worker:
    away_since: float = math.nan
    is_back: bool = False
    not_before: float = -math.inf  # when it may come in again
    pause: float = 0.0  # how long it stays out when it is late the next time
    returned_at: float = -math.inf
    missed: int = 0
    returns: int = 0


class Attendance:
    """Keeps the list. A worker that is late comes in again as soon as it is back; one that is late again has to pause.

    The pause is a second, twice as long each further time: a worker that is always a little too slow costs a deadline now
    and then, not one in each step.

    Args:
        workers: their ranks; all are there.
        longest_pause: in seconds.
        clock: tells the time in seconds.

    Attributes:
        present: the ranks of those that are there.
        deadlines: how many have passed.
        seconds: how long was waited in these.
    """

    def __init__(
        self, workers: Iterable[int], longest_pause: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = {rank: _Worker() for rank in workers}
        self._longest_pause, self._clock = longest_pause, clock
        self.present = set(self._workers)
        self.deadlines, self.seconds = 0, 0.0
        self._news: list[dict[str, Any]] = []

    @property
    def away(self) -> tuple[int, ...]:
        """The ranks of those that are not there."""
        return tuple(rank for rank in self._workers if rank not in self.present)

    def close_without(self, late: Iterable[int], waited: float) -> None:
        """Say that these have missed a deadline, after so many seconds."""
        now = self._clock()
        self.deadlines, self.seconds = self.deadlines + 1, self.seconds + waited
        for rank in sorted(late):
            worker = self._workers[rank]
            if now - worker.returned_at > FORGOTTEN:
                worker.pause = 0.0
            worker.away_since, worker.is_back, worker.not_before = now, False, now + worker.pause
            worker.pause = min(max(1.0, 2 * worker.pause), self._longest_pause)
            self.present.discard(rank)
            self._news.append({"event": "late", "rank": rank, "seconds": waited})

    def heard(self, rank: int) -> None:
        """Say that something has come from a worker that is away."""
        self._workers[rank].is_back = True

    def returning(self) -> list[int]:
        """The ranks of those that are back, and have paused."""
        now = self._clock()
        return [rank for rank in self.away if self._workers[rank].is_back and now >= self._workers[rank].not_before]

    def let_in(self, rank: int) -> None:
        """Say that a worker is there again."""
        worker = self._workers[rank]
        worker.returned_at = self._clock()
        worker.returns += 1
        self.present.add(rank)
        self._news.append({"event": "returned", "rank": rank, "seconds": worker.returned_at - worker.away_since})

    def vote_is_over(self) -> None:
        """Count a missed vote for each that is away."""
        for rank in self.away:
            self._workers[rank].missed += 1

    def news(self) -> list[dict[str, Any]]:
        """Return what has happened since the last call: `event` ("late", "returned"), `rank`, `seconds` (waited, away)."""
        told, self._news = self._news, []
        return told

    def counts(self) -> tuple[list[int], list[int]]:
        """How many votes each worker has missed, and how often each came back."""
        workers = self._workers.values()
        return [worker.missed for worker in workers], [worker.returns for worker in workers]
