"""Seconds from the launch to the first step, against ranks that only import torch, Numba and mpi4py."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

BARE, FIRST, WHOLE = "bare imports, whole", "mpisign.train, to the first step", "mpisign.train, whole"
_TERM_SECONDS = 5.0  # what mpirun gets to end its ranks before it is killed


def mpirun() -> str:
    """Return the mpirun of this Python's environment, else that of PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise SystemExit("no mpirun beside this Python or in PATH: pip install 'mpisign[mpich]'")
    return found


def launch(ranks: int, arguments: Sequence[str], timeout: float, options: Sequence[str] = ()) -> tuple[float, float]:
    """Run Python on some ranks, with further options of mpirun, until all have ended; return when, and seconds since.

    Raises SystemExit where the job fails or takes longer than `timeout` seconds; nothing of it is left running.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(harness.ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [mpirun(), *options, "-n", str(ranks), sys.executable, *arguments]
    with tempfile.TemporaryFile("w+") as output:
        launched = time.time()
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        job = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        try:
            code = job.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"mpirun -n {ranks}: no end after {timeout:g} s") from None
        finally:
            end(job)
        seconds = time.time() - launched
        if code:
            output.seek(0)
            raise SystemExit(f"mpirun -n {ranks}: exit code {code}\n{output.read()[-4000:]}")
    return launched, seconds


def end(job: subprocess.Popen[bytes]) -> None:
    """End a job that still runs, with its whole process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if job.poll() is not None:
            return
        os.killpg(job.pid, number)
        try:
            job.wait(_TERM_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def bare(ranks: int, timeout: float) -> float:
    """Seconds of ranks that import and end."""
    return launch(ranks, ["-c", "import torch, numba, mpi4py"], timeout)[1]


def train(ranks: int, timeout: float, *flags: str) -> tuple[float, float, dict[str, Any]]:
    """Seconds of the main job to its first step and to its end, and its summary."""
    with tempfile.TemporaryDirectory() as folder:
        launched, seconds = launch(ranks, ["-m", "mpisign.train", "--output", f"{folder}/run", *flags], timeout)
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    return summary["first_step_at"] - launched, seconds, summary


def rounds(ranks: int, repeats: int, timeout: float) -> tuple[harness.Comparison, dict[str, Any]]:
    """Launch both in turn, after a start of each on one rank that fills the caches of files and of Numba."""
    bare(1, timeout)
    train(1, timeout, "--steps", "1")
    comparison, summary = harness.Comparison(f"start of {ranks} ranks", BARE), {}
    for _ in range(repeats):
        comparison.record(BARE, bare(ranks, timeout))
        first, whole, summary = train(ranks, timeout)
        comparison.record(FIRST, first)
        comparison.record(WHOLE, whole)
    return comparison, summary


def main() -> None:
    """Measure, and check the targets of the main job."""
    flags = harness.parser("startup", __doc__, repeats=3)
    flags.add_argument("--ranks", type=int, default=16, metavar="N", help="ranks of each job (default: 16)")
    flags.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for each job (default: 300)")
    settings = flags.parse_args()
    record = harness.Record("startup", settings)
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    comparison, summary = rounds(settings.ranks, settings.repeats, settings.timeout)
    record.compare(comparison)
    record.figure("summary", summary)
    record.check("first step against bare imports", comparison.ratio(FIRST), "≤", 1.25)
    record.check("seconds of the whole main job", min(comparison.seconds[WHOLE]), "≤", 40)
    record.check("its test accuracy", summary["test_accuracy"], "≥", 0.95)
    record.close()


if __name__ == "__main__":
    main()
