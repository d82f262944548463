"""Settings of several runs: which differ, and which all share."""

from collections.abc import Sequence
from typing import Any

from ..config import FIELDS, SECTION_OF
from .runs import Run

Line = tuple[str, str, list[str]]
"""A table of the TOML file, a flag, and each run's value as text."""

_FILES = ("output", "overwrite", "resume")  # differ, and change nothing


def split(runs: Sequence[Run]) -> tuple[list[Line], list[Line]]:
    """Return the settings in which runs differ (of one run: from the defaults), and all the others."""
    differ: list[Line] = []
    same: list[Line] = []
    for name, entry in FIELDS.items():
        values = [run.settings[name] for run in runs]
        compared = [*values, entry.default] if len(runs) == 1 else values
        differs = any(value != compared[0] for value in compared) and name not in _FILES
        (differ if differs else same).append((SECTION_OF[name], entry.metadata["flag"], [_shown(v) for v in values]))
    return differ, same


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "by default" if value is None else str(value)
