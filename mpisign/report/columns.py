"""What the rows and the summary of a run say in numbers: columns to draw, seconds by phase, agreement by rank."""

import math
from collections.abc import Mapping, Sequence

from .runs import COLUMNS, Run, finite

WITHOUT = "other"
"""The seconds of a run that none of its phases counts."""


def columns(run: Run) -> dict[str, list[float]]:
    """Return what each epoch's row says, by the names of pictures, and `bytes`; NaN where it says nothing.

    `bytes` are those that a worker has sent, the median one.
    """
    found = {name: [finite(row.get(key)) for row in run.rows] for key, name in COLUMNS.items()}
    return found | {"bytes": [finite(row["bytes_sent"]) for row in run.rows]}


def has(run: Run, column: str) -> bool:
    """Tell whether any epoch says something."""
    return not all(map(math.isnan, columns(run)[column]))


def phases(run: Run) -> dict[str, float]:
    """Return the seconds of each phase, mean over ranks, and `other`, what is left of the run's; nothing before its end."""
    seconds: Mapping[str, float] = run.summary.get("seconds_by_phase", {})
    rest = max(run.summary.get("seconds", 0.0) - sum(seconds.values()), 0.0)
    return {**seconds, WITHOUT: rest} if seconds else {}


def shares(run: Run) -> Sequence[float | None]:
    """Return how often each rank's signs were the verdict's; nothing where no rank has voted, or before the end."""
    found: Sequence[float | None] = run.summary.get("agreement_by_rank", [])
    return found if any(share is not None for share in found) else []
