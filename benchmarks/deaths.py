"""Kill a third of the workers of a real run one by one, and compare its test accuracy with that of a run in which all live.

python benchmarks/deaths.py --data mnist.npz            # Open MPI with ULFM

Deaths come at even distances of steps; ranks are drawn by the seed, rank 0, which counts the votes, among them. The data of
the dead are left out, or dealt anew among those that are left (--lost-data).
"""

import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import harness
from failures import Trial, Trials
from startup import mpirun


def plan(ranks: int, share: float, steps: int, chance: random.Random) -> str:
    """Return deaths of this share of the ranks as --inject takes them."""
    dying = chance.sample(range(ranks), int(share * ranks))
    moments = [steps * (number + 1) // (len(dying) + 1) for number in range(len(dying))]
    return ";".join(f"kill:rank={rank},step={step}" for rank, step in zip(dying, moments, strict=True))


def run(trials: Trials, more: list[str]) -> Trial:
    """Run one job to its end."""
    with tempfile.TemporaryDirectory() as folder:
        trial = trials.job("server", Path(folder) / "run", *more)
    if trial.code or trial.summary is None or trial.summary["steps"] != trials.steps:
        raise SystemExit(f"a job did not end well\n{trial.output[-3000:]}\n{trial.events}")
    return trial


def main() -> None:
    """Train undisturbed and with deaths from the same seeds, and check that the accuracies are alike."""
    flags = harness.parser("deaths", __doc__, repeats=3)
    flags.add_argument("--data", type=Path, required=True, metavar="FILE", help="mnist.npz, or what has its arrays")
    flags.add_argument("--ranks", type=int, default=12, metavar="N", help="of each job (default: 12)")
    flags.add_argument("--share", type=float, default=1 / 3, metavar="X", help="of the ranks that die (default: 1/3)")
    flags.add_argument("--steps", type=int, default=1500, metavar="N", help="of each job (default: 1500)")
    flags.add_argument("--lr", default="5e-4", metavar="X", help="learning rate (default: 5e-4)")
    flags.add_argument("--limit", type=float, default=240.0, metavar="SECONDS", help="then a job hangs (default: 240)")
    settings = flags.parse_args()
    data, settings.data = settings.data.resolve(), settings.data.name  # a record is for others, who have it elsewhere
    record, trials = harness.Record("deaths", settings), Trials(settings, random.Random(0))
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    accuracies: dict[str, list[float]] = {"all live": [], "leave": [], "redistribute": []}
    for seed in range(settings.repeats):
        deaths = plan(settings.ranks, settings.share, settings.steps, random.Random(seed))
        same = ["--task", "mnist", "--data", str(data), "--lr", settings.lr, "--seed", str(seed)]
        same += ["--epochs", str(settings.steps)]
        for name, found in accuracies.items():
            more = [] if name == "all live" else ["--inject", deaths, "--lost-data", name]
            summary: dict[str, Any] | None = run(trials, same + more).summary
            assert summary is not None
            left = settings.ranks - (int(settings.share * settings.ranks) if more else 0)
            if len(summary["ranks_left"]) != left:
                raise SystemExit(f"{name}: ranks {summary['ranks_left']} are left; wanted {left} of them")
            found.append(summary["test_accuracy"])
            print(f"seed {seed}, {name:12} {found[-1]:.4f}  {deaths if more else ''}", flush=True)
    for name, found in accuracies.items():
        record.figure(name, {"lr": float(settings.lr), "test_accuracy": found})
    for name in ("leave", "redistribute"):
        points = 100 * (statistics.mean(accuracies["all live"]) - statistics.mean(accuracies[name]))
        record.check(f"{name}: points below the run in which all live", points, "≤", 1.0)
    record.close()


if __name__ == "__main__":
    main()
