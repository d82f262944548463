"""One rank of a notebook's cell, as a program: what it prints, fails by or returns goes to files of its own."""

import faulthandler
import json
import math
import os
import re
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..environment import check_world, launched, limit_threads
from .luggage import Item, execute, unpack
from .parcel import check_sendable, seal, unseal

START = 60
"""Seconds for a rank to start and to import what is sent along: that is the machine's time, not the cell's."""

_PATIENCE = 0.3  # seconds for ranks that fail alike to say so, before the first one ends all
_ALARM = 10  # seconds after its time is up at which a rank ends by itself


class Files(NamedTuple):
    """What a rank leaves behind."""

    output: Path
    failure: Path
    stack: Path
    value: Path


@dataclass(frozen=True)
class Failure:
    """An uncaught exception: when, in a line, and in full."""

    time: float
    summary: str
    traceback: str


def files_of(folder: Path, rank: int) -> Files:
    """Return the names of a rank's files."""
    return Files(*(folder / f"{kind}-{rank}" for kind in Files._fields))


def main(folder: Path, seconds: float) -> None:
    """Run the cell that lies in `folder`; after so many seconds of it, write down where this rank stands."""
    launch = launched()
    limit_threads(launch)
    files = files_of(folder, launch.rank)
    _redirect(files.output)
    _set_alarm(START)
    program = ModuleType("__main__")
    sys.modules["__main__"] = program
    try:
        value = _run(folder, files.stack, seconds, program.__dict__)
    except BaseException as error:
        try:
            files.failure.write_text(json.dumps(asdict(_failure(error))))
            time.sleep(_PATIENCE)
        finally:
            _end_all()
    sys.stdout.flush()
    seal(files.value, {"value": value})


def _run(folder: Path, stack: Path, seconds: float, namespace: dict[str, Any]) -> Any:
    """Run the cell and return the variable that it was asked for."""
    sent = unseal(folder / "cell")
    source, out = sent["source"], sent["out"]
    unpack([Item(**item) for item in sent["items"]], namespace)
    # from here on the cell's time runs; this needs no Python to run, for a rank may be blocked inside MPI
    faulthandler.dump_traceback_later(seconds, file=stack.open("w"))
    _set_alarm(seconds)
    try:
        execute(source, "cell", namespace)
    except SystemExit as end:
        if end.code:
            raise
    mpi = _started_mpi()
    if mpi is not None:
        check_world(mpi.COMM_WORLD.size, launched())  # an mpiexec of another MPI starts n worlds of one rank
    if out and out not in namespace:
        raise NameError(f"--out {out}: the cell sets no variable of this name")
    value = namespace[out] if out else None
    check_sendable(out, value, "the notebook")
    return value


def _set_alarm(seconds: float) -> None:
    """End this rank some time after it should have ended, if nobody else does it: a notebook's process may be killed."""
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(seconds) + _ALARM)


def _redirect(output: Path) -> None:
    """Let all that this process prints, libraries in C too, go to one file, in order."""
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", line_buffering=True)  # type: ignore[union-attr]


def _failure(error: BaseException) -> Failure:
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<notebook"):
        trace = trace.tb_next  # the reader's code begins where this file's ends
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    places = "|".join(re.escape(path + os.sep) for path in sorted(sys.path, key=len, reverse=True) if path)
    text = re.sub(rf'File "(?:{places})', 'File "', "".join(lines))  # as short as it can be said
    summary = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, NameError) and error.name:
        text += f"\nRanks see nothing of the notebook. If {error.name} is in it: %%mpirun … --with {error.name}\n"
    return Failure(time.time(), summary, text.rstrip())


def _end_all() -> None:
    """End all ranks: they may wait for this one. Finalising MPI here would wait for them."""
    sys.stdout.flush()
    mpi = _started_mpi()
    if mpi is not None:
        mpi.COMM_WORLD.Abort(1)
    os._exit(1)


def _started_mpi() -> Any:
    """mpi4py.MPI, where the cell has started MPI."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
