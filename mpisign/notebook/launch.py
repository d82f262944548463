"""Start ranks for a cell, wait for them no longer than allowed, and read what each has left in a folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .luggage import Item
from .parcel import seal, unseal
from .rank import START, Failure, files_of

# Open MPI refuses root and more ranks than cores unless told; MPICH ignores these
_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_OF_A_LAUNCHER = ("PMI_", "PMIX_", "OMPI_COMM_", "MPI_LOCAL", "HYDRA_", "HYDI_", "SLURM_")
_GRACE = 0.7  # seconds for ranks to write down where they are
_PATIENCE = 5  # seconds for mpiexec to end its ranks
_NAP = 0.03  # seconds between two looks


@dataclass(frozen=True)
class Outcome:
    """What became of a rank: its output, where it failed or stood when time was up, and its value of --out."""

    rank: int
    output: str
    failure: Failure | None
    place: str
    value: Any


@dataclass(frozen=True)
class Job:
    """What became of the ranks together; `said` is what mpiexec itself printed."""

    outcomes: Sequence[Outcome]
    seconds: float
    out_of_time: bool
    code: int
    said: str


def find_mpiexec() -> str | None:
    """Return the mpiexec beside this Python, else the first in PATH, else None."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return shutil.which("mpiexec", path=os.pathsep.join(places))


def environment_of_ranks(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return this process's environment without what its own launcher, if any, put there, and with what MPI wants."""
    own = {name: value for name, value in environ.items() if not name.startswith(_OF_A_LAUNCHER)}
    return {**_SETTINGS, **own, "MPLBACKEND": "Agg"}  # a notebook's back end works only in its own process


def run(mpiexec: str, source: str, ranks: int, seconds: float, luggage: Sequence[Item], out: str = "") -> Job:
    """Run a program as so many ranks on this machine and return what became of them; nothing of it is left running.

    Args:
        mpiexec: the launcher.
        source: the program.
        ranks: how many, 1 or more.
        seconds: so many after the last rank has begun with the program, all are stopped; an interrupt stops them too.
        luggage: variables that the program finds.
        out: the variable to return from every rank; none by default.
    """
    with tempfile.TemporaryDirectory(prefix="mpisign-cell-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        seal(folder / "cell", {"source": source, "items": [vars(item) for item in luggage], "out": out})
        command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpisign.notebook.rank", name, str(seconds)]
        with (folder / "mpiexec.txt").open("w") as said:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                start_new_session=True, env=environment_of_ranks(),
            )  # fmt: skip
        try:
            code = _wait(process, folder, ranks, seconds)
        finally:  # an interrupt comes by here, too
            _end(process)
        outcomes = [_outcome(folder, rank, source) for rank in range(ranks)]
        return Job(
            outcomes, seconds, code is None, code or 0, (folder / "mpiexec.txt").read_text(errors="replace").strip()
        )


def _wait(process: "subprocess.Popen[bytes]", folder: Path, ranks: int, seconds: float) -> int | None:
    """Return mpiexec's exit code, or None when the time is up."""
    begun = [files_of(folder, rank).stack for rank in range(ranks)]
    limit = time.monotonic() + START
    while process.poll() is None and time.monotonic() < limit:
        if begun and all(file.exists() for file in begun):
            begun, limit = [], time.monotonic() + seconds + _GRACE
        time.sleep(_NAP)
    return process.poll()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End mpiexec and its ranks, if they run; ranks have an alarm clock of their own besides."""
    if process.poll() is not None:
        return
    process.terminate()  # mpiexec ends its ranks, which need not be in its process group
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _outcome(folder: Path, rank: int, source: str) -> Outcome:
    files = files_of(folder, rank)
    output = files.output.read_text(errors="replace") if files.output.exists() else ""
    failure = Failure(**json.loads(files.failure.read_text())) if files.failure.exists() else None
    ended = files.value.exists()
    value = unseal(files.value)["value"] if ended else None
    return Outcome(rank, output, failure, "had ended" if ended else _place(files.stack, source), value)


def _place(stack: Path, source: str) -> str:
    """The innermost line of the notebook in a dump of faulthandler, which has the most recent call first."""
    text = stack.read_text(errors="replace") if stack.exists() else ""
    found = re.search(r'File "<notebook (.+?)>", line (\d+)', text)
    if found is None:
        return "was still starting"
    title, number = found[1], int(found[2])
    shown = f": {source.splitlines()[number - 1].strip()}" if title == "cell" else ""
    return f"line {number} of {'this cell' if title == 'cell' else title}{shown}"
