"""What it costs to be ready for failures: seconds a step of real jobs in which nothing happens, with each handling and without.

python benchmarks/handling.py            # a quorum, and checkpoints; with Open MPI also survival by ULFM

A step's time is the whole training's without its evaluations, over the steps: messages, agreements, copies and all.
"""

import math
import random
import statistics
import tempfile
from pathlib import Path

import harness
from failures import Trials
from startup import mpirun

OFF = "none"
HANDLINGS = {
    "quorum": (["--quorum", "0.5"], False),
    "checkpoints": (["--checkpoint-every", "100"], False),
    "ULFM": ([], True),
    "ULFM and checkpoints": (["--checkpoint-every", "100"], True),
}
"""Further flags of a job, and whether its mpirun gets --with-ft ulfm, which only Open MPI knows."""

MOST = 1.03


def seconds_a_step(trials: Trials, more: list[str], ulfm: bool) -> float:
    """Run one job."""
    with tempfile.TemporaryDirectory() as folder:
        trial = trials.job("server", Path(folder) / "run", *more, ulfm=ulfm)
    if trial.code or trial.summary is None:
        raise SystemExit(f"a job to which nothing is done fails\n{trial.output[-3000:]}")
    training = trial.summary["seconds"] - trial.summary["seconds_by_phase"]["evaluate"]
    return float(training / trial.summary["steps"])


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return two of these sorted numbers between which their true median lies, to at least 95 % where there are six or more.

    Each number is above the true median by a chance of 1/2, so how many are is binomial; nothing else is supposed.
    """
    outside, below = 0, 0
    while (outside + math.comb(len(ratios), below)) / 2 ** len(ratios) <= 0.025:
        outside += math.comb(len(ratios), below)
        below += 1
    return ratios[max(below - 1, 0)], ratios[-max(below, 1)]


def main() -> None:
    """Measure the handlings in turn, and check that none costs more than three percent."""
    flags = harness.parser("handling", __doc__, repeats=9)
    flags.add_argument("--ranks", type=int, default=6, metavar="N", help="of each job (default: 6)")
    flags.add_argument("--steps", type=int, default=600, metavar="N", help="of each job (default: 600)")
    flags.add_argument("--batch-size", type=int, default=16, metavar="N", help="of each rank (default: 16)")
    flags.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="then a job hangs (default: 120)")
    settings = flags.parse_args()
    record, trials = harness.Record("handling", settings), Trials(settings, random.Random(0))
    mpi = harness.first_line([mpirun(), "--version"])
    record.figure("mpi", mpi)
    size = ["--epochs", str(settings.steps), "--batch-size", str(settings.batch_size)]
    jobs: dict[str, tuple[list[str], bool]] = {OFF: ([], False)}
    jobs |= {
        name: job for name, job in HANDLINGS.items() if not job[1] or "Open MPI" in str(mpi) or "open-mpi" in str(mpi)
    }
    comparison = harness.Comparison(f"a step of {settings.ranks} ranks", OFF)
    for turn in range(settings.repeats):
        for name in [*list(jobs)[turn % len(jobs) :], *list(jobs)[: turn % len(jobs)]]:
            comparison.record(name, seconds_a_step(trials, size + jobs[name][0], jobs[name][1]))
    record.compare(comparison)
    seconds = comparison.seconds
    for name in list(jobs)[1:]:
        ratios = sorted(on / off for on, off in zip(seconds[name], seconds[OFF], strict=True))
        low, high = interval(ratios)
        record.figure(name, {"median ratio": statistics.median(ratios), "at least": low, "at most": high})
        print(f"{name}: by {low:.3f} to {high:.3f} of none, to 95 %")
        record.check(
            f"{name}: a step's time against none's in the same round, median", statistics.median(ratios), "≤", MOST
        )
    record.close()


if __name__ == "__main__":
    main()
