"""End the whole job, with one message, when one of its ranks can't go on: a rank that waits for a dead one waits for ever."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..errors import MpisignError

TIMED_OUT = 75
"""The exit code of a job in which nothing moved (EX_TEMPFAIL): start it again."""

_PATIENCE = 0.5  # seconds that other ranks leave to rank 0 to speak for all
_FORWARDING = 0.3  # seconds for the launcher to pass the message on: at an abort it drops what it has not read
_STOPPED = 1.0  # seconds that a nap takes too long when the process was stopped meanwhile
_LAST_RESORT = 10.0  # seconds after which a process ends itself, if the abort has not


class Unguarded:
    """Nobody asks to stop, and nobody watches: for runs inside a program of one's own."""

    @property
    def stop_is_wanted(self) -> bool:
        """Whether somebody has asked for a checkpoint and an end."""
        return False

    def alive(self) -> None:
        """Say that this rank has got on."""

    def follow(self, comm: Any) -> None:
        """Let these be the ranks from now on."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Expect what is done inside the block to take no longer."""
        yield


class Guard(Unguarded):
    """From now on an uncaught exception, SIGTERM or SIGINT (Ctrl-C) on this rank ends all ranks, and so does standing still.

    An exception prints its traceback, an error of mpisign's own its message only. What happens on all ranks alike is
    reported by rank 0. Works while the main thread is blocked inside MPI, too.

    Args:
        rank: of this process.
        size: ranks in all.
        abort: called with the exit code; ends the processes of all ranks. 1: an exception; 128 + number: a signal; 75: a
            rank got on no more for `timeout` seconds.
        timeout: between two calls of `alive`; 0: for ever.
        can_stop: whether the run can be continued: then the first SIGUSR1 or SIGTERM only makes `stop_is_wanted` true,
            and the second one ends the job.
        rescue: called before the job is ended because it stands still; returns whether it did something that may help,
            and then as long is waited again.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        abort: Callable[[int], None],
        timeout: float = 0.0,
        can_stop: bool = False,
        rescue: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rank, self._size, self._abort, self._timeout, self._rescue = rank, size, abort, timeout, rescue
        self._can_stop, self._asked = can_stop, False
        self._seen, self._limit = time.monotonic(), timeout
        sys.excepthook = self._on_exception
        threading.excepthook = lambda hook: self._on_exception(
            hook.exc_type, hook.exc_value or RuntimeError("a thread failed"), hook.exc_traceback
        )
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        # the wake-up descriptor is written even while Python's own handlers can't run
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda _number, _frame: None)
        threading.Thread(target=self._listen, args=(reader,), name="signals", daemon=True).start()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @property
    def stop_is_wanted(self) -> bool:
        """Whether SIGUSR1 or SIGTERM has come."""
        return self._asked

    def alive(self) -> None:
        """Say that this rank has got on."""
        self._seen = time.monotonic()

    def follow(self, comm: Any) -> None:
        """Let these be the ranks that are rescued, or ended, from now on."""
        self._rescue, self._abort = comm.rescue, comm.abort

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End the job where what is done inside the block takes longer than so many seconds, or than the timeout."""
        self.alive()
        self._limit = min(seconds, self._timeout) if self._timeout else seconds
        try:
            yield
        finally:
            self.alive()
            self._limit = self._timeout

    def _end(self, code: int, message: str) -> None:
        if self._rank and self._size > 1:
            time.sleep(_PATIENCE)
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
        time.sleep(_FORWARDING)
        last_resort = threading.Timer(_LAST_RESORT, os._exit, [code])
        last_resort.daemon = True
        last_resort.start()
        self._abort(code)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        rank, size = self._rank, self._size
        if isinstance(error, MpisignError):
            text = f"mpisign: {error}" if rank == 0 else f"mpisign, rank {rank} of {size}: {error}"
            self._end(error.code if error.code > 2 else 1, text)
        else:
            lines = "".join(traceback.format_exception(kind, error, trace))
            self._end(1, f"mpisign: rank {rank} of {size} failed and ends the job\n{lines}")

    def _listen(self, pipe: int) -> None:
        while True:
            number = os.read(pipe, 1)[0]
            if self._can_stop and not self._asked and number != signal.SIGINT:
                self._asked = True
                continue
            name = signal.Signals(number).name
            self._end(128 + number, f"mpisign: rank {self._rank} of {self._size} got {name}: the job ends")

    def _watch(self) -> None:
        while True:
            limit = self._limit
            nap, began = min(limit / 10, 1.0) if limit else 1.0, time.monotonic()
            time.sleep(nap)
            if time.monotonic() - began > 2 * nap + _STOPPED:  # it's this process that was stopped: it may go on now
                self.alive()
            still = time.monotonic() - self._seen
            if not limit or still < limit or limit != self._limit:
                continue
            if self._rescue():
                self.alive()
                continue
            advice = (
                "if a step takes that long, raise --timeout" if limit == self._timeout else "go on with --resume auto"
            )
            self._end(
                TIMED_OUT,
                f"mpisign: rank {self._rank} of {self._size} has got no further for {still:.0f} s, in {_place()}: another rank "
                f"is dead, stopped or slow; the job ends with code {TIMED_OUT}; {advice}",
            )


def _place() -> str:
    """Where the main thread is, in this package."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        if "mpisign" in file:
            return f"{frame.f_code.co_name} ({os.path.basename(file)}, line {frame.f_lineno})"
        frame = frame.f_back
    return "a place outside mpisign"
