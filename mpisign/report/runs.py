"""A run as its folder tells it, under way or done: settings, an epoch's figures a row, events, and figures at the end."""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import FIELDS, SECTION_OF, SECTIONS, kind_of
from ..errors import DataError

Row = dict[str, Any]

COLUMNS = {
    "step": "steps",
    "seconds": "seconds",
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "train_loss": "train loss",
    "test_accuracy_worst": "worst worker's accuracy",
    "consensus_distance": "consensus distance",
    "agreement": "agreement",
}
"""What metrics.jsonl calls a column, and what pictures do."""

_KINDS: dict[Any, tuple[type, ...]] = {int: (int,), float: (float, int), bool: (bool,)}
_MAY_OVERFLOW = ("train_loss", "test_loss", "consensus_distance")
_NEEDED = ("epoch", "step", "seconds", "test_accuracy", "test_loss", "train_loss", "bytes_sent")


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: what the report calls it.
        folder: where it lies.
        settings: all of them, defaults filled in, by the names of config's fields.
        rows: an epoch's figures each, as tracking writes them; numbers are checked.
        events: what happened, in the order of the file.
        summary: the figures at the end; empty while there are none.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    rows: Sequence[Row]
    events: Sequence[Row]
    summary: Mapping[str, Any]

    @property
    def is_done(self) -> bool:
        """Whether its summary is there."""
        return bool(self.summary)

    @property
    def ranks(self) -> int | None:
        """How many it began with, where its files say so."""
        told: int | None = self.summary.get("ranks") or self.settings["simulate"]
        seen = [rank for event in self.events for rank in (*event.get("lost", ()), *event.get("ranks_left", ()))]
        return told or (max(seen) + 1 if seen else None)


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Return a name for each folder, the same one once: as much of the end of its path as tells it from the others.

    >>> named([Path("runs/a"), Path("runs/b"), Path("old/a")])
    {'runs/a': PosixPath('runs/a'), 'b': PosixPath('runs/b'), 'old/a': PosixPath('old/a')}
    """
    different = {folder.resolve(): folder for folder in reversed(folders)}
    paths = {path.parts: different[path] for path in dict.fromkeys(folder.resolve() for folder in folders)}
    names = {}
    for parts, folder in paths.items():
        size = 1
        while size < len(parts) and sum(other[-size:] == parts[-size:] for other in paths) > 1:
            size += 1
        names[_printable("/".join(parts[-size:]))] = folder
    return names


def _printable(text: str) -> str:
    """A name that pictures can bear: nothing invisible, and no _ in front, which hides it from legends."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return f"run {shown}" if shown.startswith("_") else shown or "run"


def read(folder: Path, name: str = "") -> Run:
    """Return the run in a folder; only config.toml and metrics.jsonl must be there.

    A last line that is only half written yet is left out. Errors: DataError, of one line, for a folder without a run, for what
    is damaged, and for settings of another version.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give the --output of a run")
    for file in ("config.toml", "metrics.jsonl"):
        if not (folder / file).is_file():
            raise DataError(f"{folder}: no {file}, so there is no run here; give the --output of one")
    settings = _settings(folder / "config.toml")
    rows = [_checked_row(row, where) for row, where in _lines(folder / "metrics.jsonl")]
    events = [_checked_event(row, where) for row, where in _lines(folder / "events.jsonl")]
    return Run(
        name or _printable(folder.resolve().name), folder, settings, rows, events, _summary(folder / "summary.json")
    )


def _settings(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(_text(file))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{file}: not a TOML file ({error})") from None
    settings = {name: entry.default for name, entry in FIELDS.items()}
    for section, table in document.items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise DataError(f"{file}: of another version of mpisign, since this one knows no [{section}]")
        for key, value in table.items():
            if SECTION_OF.get(key) != section:
                raise DataError(
                    f"{file}: of another version of mpisign, since this one knows no {key!r} in [{section}]"
                )
            kind = kind_of(FIELDS[key])[0]
            if type(value) not in _KINDS.get(kind, (str,)):
                raise DataError(f"{file}: {key} = {value!r}, wanted {getattr(kind, '__name__', 'text')}")
            settings[key] = value
    return settings


def _lines(file: Path) -> list[tuple[Row, str]]:
    """The objects of a file with one a line, and where each stands; nothing where there is no file."""
    if not file.exists():
        return []
    text = _text(file, half=True)
    rows = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        where = f"{file}: line {number}"
        try:
            rows.append((_object(line, where), where))
        except DataError:
            if line.endswith("\n"):
                raise
    return rows


def _summary(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    summary, where = _object(_text(file), str(file)), str(file)
    for key in ("steps", "seconds", "bytes_sent", "ranks", "first_step_at"):
        if key != "first_step_at" or summary.get(key) is not None:
            _number(summary, key, where)
    for key, value in _part(summary, "seconds_by_phase", dict, where).items():
        if not (_is_number(value) and 0 <= value < math.inf):
            raise _unfit(where, f"seconds_by_phase, {key}", value, "seconds of at least 0")
    for share in _part(summary, "agreement_by_rank", list, where):
        if share is not None and not (_is_number(share) and 0 <= share <= 1):
            raise _unfit(where, "agreement_by_rank", share, "shares in [0, 1] or null")
    ranks = summary["ranks"]
    quarantined = summary.get("quarantined")
    listed = _part(summary, "byzantine", list, where) + [_whole(rank) for rank in (quarantined or {})]
    if not all(type(rank) is int and 0 <= rank < ranks for rank in listed):
        raise _unfit(where, "byzantine and quarantined", listed, f"ranks below {ranks}")
    return summary


def _whole(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _part(summary: Row, key: str, kind: type, where: str) -> Any:
    """A part of the summary; an empty one where it is missing."""
    value = summary.get(key, kind())
    if not isinstance(value, kind):
        raise _unfit(where, key, value, f"a {kind.__name__}")
    return value


def _checked_row(row: Row, where: str) -> Row:
    for key in _NEEDED:
        _number(row, key, where)
    for key in COLUMNS:
        if row.get(key) is not None:
            _number(row, key, where)
    return row


def _checked_event(row: Row, where: str) -> Row:
    if not isinstance(row.get("event"), str) or not isinstance(row.get("message", ""), str):
        raise DataError(f"{where} is damaged: an event without a name, or with a message that is no text")
    for key in ("time", "seconds", "step", "rank", "steps_lost"):
        if row.get(key) is not None:
            _number(row, key, where)
    for key in ("lost", "ranks_left"):
        listed = row.get(key, [])
        if not isinstance(listed, list) or not all(type(rank) is int and 0 <= rank < 2**20 for rank in listed):
            raise _unfit(where, key, listed, "a list of ranks")
    return row


def _number(row: Row, key: str, where: str) -> None:
    value = row.get(key)
    if not _is_number(value) or not (math.isfinite(value) or key in _MAY_OVERFLOW):  # type: ignore[arg-type]
        raise _unfit(where, key, row.get(key), "a number")


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _unfit(where: str, key: str, value: Any, wanted: str) -> DataError:
    return DataError(f"{where} is damaged, or of another version: {key} is {str(value)[:60]!r}, wanted {wanted}")


def _object(text: str, where: str) -> Row:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is damaged: no JSON ({error})") from None
    if not isinstance(found, dict):
        raise DataError(f"{where} is damaged: wanted an object, got {str(found)[:60]!r}")
    return found


def _text(file: Path, half: bool = False) -> str:
    try:
        raw = file.read_bytes()
        return raw.decode(errors="strict" if not half or raw.endswith(b"\n") else "replace")
    except OSError as error:
        raise DataError(f"{file}: can't read it ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is damaged: no text in UTF-8 ({error.reason} at byte {error.start})") from None


def finite(value: float | None) -> float:
    """A number to draw: NaN, which leaves a gap, for what can't be."""
    return math.nan if value is None or not math.isfinite(value) else float(value)
