"""What it costs to be ready for failures: seconds a step of real jobs in which nothing happens, with each handling and without.

python benchmarks/handling.py            # a quorum, and checkpoints; with Open MPI also survival by ULFM

Handlings are compared within one job, which trains with each of them by turns (`handling_job.py`); that mpirun's flag
--with-ft ulfm costs MPI itself, between jobs with and without it, which takes many jobs to see.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
from pathlib import Path

import harness
from failures import SETTINGS
from startup import launch, mpirun

OFF = "none"
JOBS = {
    "without ULFM": ([], [OFF, "quorum", "checkpoints"]),
    "with ULFM": (["--with-ft", "ulfm"], [OFF, "ULFM", "ULFM and checkpoints"]),
}
"""Flags of mpirun, and the handlings that a job trains with; the second is only for Open MPI."""

MOST = 1.03

Seconds = dict[str, list[float]]


def job(options: list[str], handlings: list[str], settings: argparse.Namespace) -> Seconds:
    """Run one job, and return the seconds a step of each of its trainings."""
    script = [str(Path(__file__).with_name("handling_job.py")), *handlings]
    script += [f"--repeats={settings.repeats}", f"--steps={settings.steps}", f"--batch-size={settings.batch_size}"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        launch(settings.ranks, [*script, f"--found={found}"], settings.limit, options)
        seconds: Seconds = json.loads(found.read_text())
    return seconds


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return two of these sorted numbers between which their true median lies, to at least 95 % where there are six or more.

    Each number is above the true median by a chance of 1/2, so how many are is binomial; nothing else is supposed.
    """
    outside, below = 0, 0
    while (outside + math.comb(len(ratios), below)) / 2 ** len(ratios) <= 0.025:
        outside += math.comb(len(ratios), below)
        below += 1
    return ratios[max(below - 1, 0)], ratios[-max(below, 1)]


def judge(record: harness.Record, name: str, on: list[float], off: list[float]) -> None:
    """Compare seconds that were measured in pairs."""
    ratios = sorted(one / other for one, other in zip(on, off, strict=True))
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    record.figure(name, {"pairs": len(ratios), "median ratio": middle, "at least": low, "at most": high})
    sure = "to 95 %" if len(ratios) >= 6 else "all that was seen"
    print(f"{name}: {middle:.3f} of none; {low:.3f} to {high:.3f}, {sure}, of {len(ratios)} pairs")
    record.check(f"{name}: seconds a step against none, median of pairs", middle, "≤", MOST)


def main() -> None:
    """Run jobs in turn, and check that no handling costs more than three percent."""
    flags = harness.parser("handling", __doc__, repeats=5)
    flags.add_argument("--jobs", type=int, default=6, metavar="N", help="of each kind (default: 6)")
    flags.add_argument("--ranks", type=int, default=6, metavar="N", help="of each job (default: 6)")
    flags.add_argument("--steps", type=int, default=400, metavar="N", help="of each training (default: 400)")
    flags.add_argument("--batch-size", type=int, default=16, metavar="N", help="of each rank (default: 16)")
    flags.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="for a job (default: 300)")
    settings = flags.parse_args()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    record = harness.Record("handling", settings)
    mpi = str(harness.first_line([mpirun(), "--version"]))
    record.figure("mpi", mpi)
    jobs = {kind: what for kind, what in JOBS.items() if not what[0] or "Open MPI" in mpi}
    found: dict[str, list[Seconds]] = {kind: [] for kind in jobs}
    for number in range(settings.jobs):
        for kind in list(jobs)[:: 1 if number % 2 else -1]:
            found[kind].append(job(*jobs[kind], settings))
    for kind, (_, handlings) in jobs.items():
        comparison = harness.Comparison(f"a step of {settings.ranks} ranks, {kind}", OFF)
        for name in handlings:
            for seconds in found[kind]:
                for took in seconds[name]:
                    comparison.record(name, took)
        record.compare(comparison)
        for name in handlings[1:]:
            judge(record, name, comparison.seconds[name], comparison.seconds[OFF])
    if len(jobs) > 1:
        on, off = ([statistics.median(seconds[OFF]) for seconds in found[kind]] for kind in reversed(jobs))
        judge(record, "mpirun --with-ft ulfm, by itself", on, off)
    record.close()


if __name__ == "__main__":
    main()
