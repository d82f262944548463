"""End the whole job, with one message, when one of its ranks can't go on: a rank that waits for a dead one waits for ever."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from ..errors import MpisignError

_PATIENCE = 0.5  # seconds that other ranks leave to rank 0 to speak for all
_FORWARDING = 0.3  # seconds for the launcher to pass the message on: at an abort it drops what it has not read


def guard(rank: int, size: int, abort: Callable[[int], None]) -> None:
    """From now on an uncaught exception, SIGTERM or SIGINT (Ctrl-C) on this rank ends all ranks.

    An exception prints its traceback, an error of mpisign's own its message only. What happens on all ranks alike is
    reported by rank 0. Works while the main thread is blocked inside MPI, too.

    Args:
        rank: of this process.
        size: ranks in all.
        abort: called with the exit code; ends the processes of all ranks. 1: an exception; 128 + number: a signal.
    """

    def end(code: int, message: str) -> None:
        if rank and size > 1:
            time.sleep(_PATIENCE)
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
        time.sleep(_FORWARDING)
        abort(code)

    def on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MpisignError):
            end(1, f"mpisign: {error}" if rank == 0 else f"mpisign, rank {rank} of {size}: {error}")
        else:
            lines = "".join(traceback.format_exception(kind, error, trace))
            end(1, f"mpisign: rank {rank} of {size} failed and ends the job\n{lines}")

    def watch(pipe: int) -> None:
        number = os.read(pipe, 1)[0]
        name = signal.Signals(number).name
        end(128 + number, f"mpisign: rank {rank} of {size} got {name}: the job ends")

    sys.excepthook = on_exception
    threading.excepthook = lambda hook: on_exception(
        hook.exc_type, hook.exc_value or RuntimeError("a thread failed"), hook.exc_traceback
    )
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # the wake-up descriptor is written even while Python's own handlers can't run
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    threading.Thread(target=watch, args=(reader,), name="signals", daemon=True).start()
