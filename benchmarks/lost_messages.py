"""What a network does that loses messages: 16 simulated workers, Fashion-MNIST dealt by Dirichlet(0.01), and 0, 1, 10 % lost.

Runs, figures and data are those of heterogeneous.py, and so are the step sizes, which are taken from its record. RelaySGD
fills what is missing by counts, or by the last mean (refresh).
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

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
) -> dict[float, float]:
    """Run one case with all seeds and shares of lost messages; return the mean accuracy for each share, in percent."""
    method, more = CASES[case]
    run = Run(method, step_size(tuned, method), 0, settings, more=more)
    runs = [replace(run, lost=lost, seed=seed) for lost in SHARES for seed in range(settings.repeats)]
    found = [one["test"] for one in learners(runs)]
    rows = {lost: found[k * settings.repeats :][: settings.repeats] for k, lost in enumerate(SHARES)}
    record.figure(case, {"lr": run.lr, "test": {f"{lost:g}": row for lost, row in rows.items()}})
    return {lost: 100 * float(np.mean(row)) for lost, row in rows.items()}


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
    for case in CASES:
        reached = judge(record, learners, case, tuned, settings)
        print(f"{case}: " + ", ".join(f"{lost:.0%} lost {accuracy:.1f} %" for lost, accuracy in reached.items()) + "\n")
        for lost in SHARES[1:]:
            if CASES[case][0] == TREES:
                record.check(f"{case}, {lost:.0%} lost: points below none lost", reached[0.0] - reached[lost], "≤", 1)
            else:
                record.check(f"{case}, {lost:.0%} lost: accuracy in percent", reached[lost], "≥", 2 * LEAST)
    learners.close()
    record.close()


if __name__ == "__main__":
    main()
