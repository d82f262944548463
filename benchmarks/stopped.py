"""Stop workers of real jobs with a quorum at random moments, many times, and count how many jobs end as they should.

python benchmarks/stopped.py ever while several     # MPICH, or Open MPI without ULFM

A job is good if it ends, its summary says that it has done all steps, and each worker that was stopped cost one deadline: it
was late once, and, stopped for a while, came back once. `lost` is what all deadlines of a job took, for each worker that was
stopped. The exit codes are mpirun's: Open MPI's crashes now and then after an abort (-11), when all is written.
"""

import random
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import harness
from failures import Trial, Trials
from startup import mpirun

SCENARIOS = {"ever": (1, ""), "while": (1, ",for=2"), "several": (2, ",for=2"), "several-ever": (2, "")}
"""How many workers are stopped, and for how long; fewer than the quorum leaves out."""

EARLIEST, LATEST = 0.5, 0.5
"""Moments are between so many seconds, and this share of a run's: there must be time to come back."""

SPARE = 3.0
"""Seconds that a job must go on after its stops, for those that come back."""


def undisturbed(trials: Trials, more: list[str]) -> float:
    """Return how many seconds a job trains in which nobody is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        trial = trials.job("server", Path(folder) / "run", *more, ulfm=False)
    if trial.code or trial.summary is None:
        raise SystemExit(f"a job to which nothing is done fails\n{trial.output[-3000:]}")
    return float(trial.summary["seconds"])


def stopped(
    trials: Trials, scenario: str, folder: Path, more: list[str], seconds: float
) -> tuple[str, Trial, list[int]]:
    """Run one job, and say what is wrong with how it ended, "" for nothing; and who was stopped."""
    count, lasts = SCENARIOS[scenario]
    ranks = trials.chance.sample(range(1, trials.ranks), count)
    latest = max(EARLIEST, LATEST * seconds)
    faults = [f"stop:rank={rank},after={trials.chance.uniform(EARLIEST, latest):.3f}{lasts}" for rank in ranks]
    trial = trials.job("server", folder, *more, "--inject", ";".join(faults), ulfm=False)
    if trial.code is None:
        return f"hung for {trials.limit} s", trial, ranks
    if trial.summary is None:
        return f"exit code {trial.code}, no summary", trial, ranks
    problems = [f"{trial.summary['steps']} steps"] if trial.summary["steps"] != trials.steps else []
    for rank in ranks:
        told = [event["event"] for event in trial.events if event.get("rank") == rank and event["event"] != "injected"]
        if told != (["late", "returned"] if lasts else ["late"]):
            problems.append(f"rank {rank}: {', '.join(told) or 'never late'}")
    return "; ".join(problems), trial, ranks


def was_over(trial: Trial, ranks: list[int]) -> bool:
    """Tell whether a job had come to its end before a stop: it is run again then, since it says nothing."""
    struck = {event["rank"]: event["time"] for event in trial.events if event["event"] == "injected"}
    if trial.summary is None:
        return False
    end = trial.summary["first_step_at"] + trial.summary["seconds"]
    return any(struck.get(rank, end) >= end - SPARE for rank in ranks)


def counted(trials: Trials, scenario: str, count: int, more: list[str], seconds: float) -> dict[str, Any]:
    """Run so many jobs, and print how many were good."""
    good, others, lost, codes = 0, 0, list[float](), Counter[int | None]()
    for number in range(count):
        while True:
            with tempfile.TemporaryDirectory() as folder:
                problem, trial, ranks = stopped(trials, scenario, Path(folder) / "run", more, seconds)
            if not was_over(trial, ranks):
                break
        good += not problem
        codes[trial.code] += 1
        if trial.summary is not None:
            lost.append(trial.summary["late"]["seconds"] / len(ranks))
        others += sum(event["event"] == "late" and event["rank"] not in ranks for event in trial.events)
        if problem:
            print(f"{scenario}, job {number}: {problem}\n{trial.output[-3000:]}\n{trial.events}", flush=True)
    times = f"lost a stop: median {statistics.median(lost):.2f} s, worst {max(lost):.2f} s" if lost else "none ended"
    ends = ", ".join(f"{code} ({number})" for code, number in codes.items())
    print(f"{scenario:12} {good} of {count}; {times}; others late: {others}; exit codes: {ends}", flush=True)
    return {"scenario": scenario, "good": good, "of": count, "seconds_lost": lost, "others_late": others}


def main() -> None:
    """Count, and check that all jobs ended well."""
    flags = harness.parser("stopped", __doc__, repeats=20)
    flags.add_argument("scenarios", nargs="+", choices=SCENARIOS)
    flags.add_argument("--seed", type=int, default=0, metavar="N", help="of ranks and moments (default: 0)")
    flags.add_argument("--ranks", type=int, default=6, metavar="N", help="of each job (default: 6)")
    flags.add_argument("--steps", type=int, default=1000, metavar="N", help="of each job (default: 1000)")
    flags.add_argument("--limit", type=float, default=240.0, metavar="SECONDS", help="then a job hangs (default: 240)")
    flags.add_argument("--late", default="drop", choices=["drop", "count"], help="of each job (default: drop)")
    settings = flags.parse_args()
    more = ["--quorum", "0.5", "--late", settings.late, "--epochs", "1000"]
    record = harness.Record("stopped", settings)
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    rows, seconds = [], undisturbed(Trials(settings, random.Random(0)), more)
    for scenario in settings.scenarios:
        trials = Trials(settings, random.Random(f"{scenario} {settings.seed}"))
        rows.append(counted(trials, scenario, settings.repeats, more, seconds))
        record.check(f"{scenario}: jobs that ended well", rows[-1]["good"], "≥", rows[-1]["of"])
    record.figure("rows", rows)
    record.close()


if __name__ == "__main__":
    main()
