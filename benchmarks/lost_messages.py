"""What a network does that loses messages: 16 simulated workers, Fashion-MNIST dealt by Dirichlet(0.01), and 0, 1, 10 % lost.

Runs, figures and data are those of heterogeneous.py, and so are the step sizes, which are taken from its record. RelaySGD
fills what is missing by counts, or by the last mean (refresh).
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import numpy as np
from heterogeneous import CLASSES, D2, DPSGD, TREES, Learners, Run, parser

SHARES = (0.0, 0.01, 0.1)
LEAST = 100 / CLASSES  # the accuracy of one who guesses; percent
CASES = {
    f"{TREES}, counts": (TREES, {"fill": "counts"}),
    f"{TREES}, refresh": (TREES, {"fill": "refresh"}),
    D2: (D2, {}),
    DPSGD: (DPSGD, {}),
}


def step_size(tuned: Path, method: str) -> float:
    """Return what heterogeneous.py chose."""
    return float(json.loads(tuned.read_text())["figures"][method]["lr"])


def judge(
    record: harness.Record, learners: Learners, case: str, tuned: Path, settings: argparse.Namespace
) -> dict[str, Any]:
    """Run one case with all seeds and shares of lost messages; return and keep what came."""
    method, more = CASES[case]
    run = Run(method, step_size(tuned, method), 0, settings, more=more)
    runs = [replace(run, lost=lost, seed=seed) for lost in SHARES for seed in range(settings.repeats)]
    found = [one["test"] for one in learners(runs)]
    rows = {f"{lost:g}": found[k * settings.repeats :][: settings.repeats] for k, lost in enumerate(SHARES)}
    entry = {"lr": run.lr, "test": rows}
    record.figure(case, entry)
    return entry


def percent(entry: Mapping[str, Any], lost: float) -> float:
    """Return the accuracy of the worst worker, the mean over seeds."""
    return 100 * float(np.mean(entry["test"][f"{lost:g}"]))


def table(figures: Mapping[str, Any]) -> str:
    """Return what a record says, as Markdown: the worst worker's accuracy, the mean over seeds, in percent."""
    rows = ["| method | step size | " + " | ".join(f"{lost:.0%} lost" for lost in SHARES) + " |"]
    rows.append("|---|---|" + "---|" * len(SHARES))
    for case in CASES:
        entry = figures[case]
        means = [f"{percent(entry, lost):.1f}" for lost in SHARES]
        rows.append(f"| {case} | {entry['lr']:g} | {' | '.join(means)} |")
    return "\n".join(rows)


def main() -> None:
    """Judge all cases, and compare each with itself on a network that loses nothing."""
    flags = parser("lost_messages", __doc__, repeats=2)
    flags.add_argument(
        "--tuned",
        type=Path,
        default=harness.RESULTS / "heterogeneous.json",
        metavar="FILE",
        help="record of heterogeneous.py, for its step sizes (default: the one in results/)",
    )
    settings = flags.parse_args()
    data, tuned = settings.data, settings.tuned
    settings.data, settings.tuned = data.name, tuned.name  # a record is for others, who have them elsewhere
    record = harness.Record("lost_messages", settings)
    learners = Learners(data, settings.jobs)
    entries = {case: judge(record, learners, case, tuned, settings) for case in CASES}
    learners.close()
    print(f"\n{table(entries)}\n")
    for case, entry in entries.items():
        for lost in SHARES[1:]:
            if CASES[case][0] == TREES:
                below = percent(entry, 0.0) - percent(entry, lost)
                record.check(f"{case}, {lost:.0%} lost: points below none lost", below, "≤", 1)
            else:
                record.check(f"{case}, {lost:.0%} lost: accuracy in percent", percent(entry, lost), "≥", 2 * LEAST)
    record.close()


if __name__ == "__main__":
    main()
