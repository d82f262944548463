"""What a network does that loses messages: 16 simulated workers, Fashion-MNIST dealt by Dirichlet(0.01), and 0, 1, 10 % lost.

Runs, figures and data are those of heterogeneous.py. The step size is the one in its record, a half or a quarter of it: for
each share of lost messages that which is best on held-out images, with seed 0. RelaySGD fills what is missing by counts, or by
the last mean (refresh).
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import numpy as np
from heterogeneous import D2, DPSGD, TREES, Learners, Run, parser

SHARES = (0.0, 0.01, 0.1)
FACTORS = (1.0, 0.5, 0.25)
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
    record: harness.Record, learners: Learners, case: str, lr: float, settings: argparse.Namespace
) -> dict[str, Any]:
    """Run one case with all shares of lost messages; return and keep, for each, the step size and what came of all seeds."""
    method, more = CASES[case]
    entry = {}
    for lost in SHARES:
        runs = [Run(method, factor * lr, 0, settings, lost, more) for factor in FACTORS]
        tried = learners(runs)
        best = max(range(len(runs)), key=lambda k: tried[k]["held_out"])
        others = [replace(runs[best], seed=seed) for seed in range(1, settings.repeats)]
        entry[f"{lost:g}"] = {
            "lr": runs[best].lr,
            "test": [one["test"] for one in (tried[best], *learners(others))],
            "grid": {
                f"{run.lr:g}": {key: one[key] for key in ("held_out", "test")}
                for run, one in zip(runs, tried, strict=True)
            },
        }
    record.figure(case, entry)
    return entry


def percent(entry: Mapping[str, Any], lost: float) -> float:
    """Return the accuracy of the worst worker, the mean over seeds."""
    return 100 * float(np.mean(entry[f"{lost:g}"]["test"]))


def table(figures: Mapping[str, Any]) -> str:
    """Return what a record says, as Markdown: the worst worker's accuracy, the mean over seeds, in percent."""
    rows = ["| method | " + " | ".join(f"{lost:.0%} lost" for lost in SHARES) + " |"]
    rows.append("|---|" + "---|" * len(SHARES))
    for case in CASES:
        cells = (f"{percent(figures[case], lost):.1f} at {figures[case][f'{lost:g}']['lr']:g}" for lost in SHARES)
        rows.append(f"| {case} | {' | '.join(cells)} |")
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
    entries = {
        case: judge(record, learners, case, step_size(tuned, method), settings) for case, (method, _) in CASES.items()
    }
    learners.close()
    print(f"\n{table(entries)}\n")
    for case, entry in entries.items():
        for lost in SHARES[1:]:
            without, reached = percent(entry, 0.0), percent(entry, lost)
            if CASES[case][0] == TREES:
                record.check(f"{case}, {lost:.0%} lost: points below none lost", without - reached, "≤", 1)
            else:
                record.check(f"{case}, {lost:.0%} lost: share of the accuracy without", reached / without, "≥", 0.5)
    record.close()


if __name__ == "__main__":
    main()
