"""What befell a run: faults on purpose, failures, recoveries and returns, what they cost, and who took part when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .runs import Row, Run

Span = tuple[float, float]

_AWAY = {"failure": "lost", "late": "late", "away": "late"}


@dataclass(frozen=True)
class Happening:
    """One line of events.jsonl.

    Attributes:
        what: injected, lost, late, returned, or the event's own name.
        seconds: when, since the first step, or since the first happening where that isn't known; None: the line doesn't say.
        ranks: whom it befell.
        message: the line's sentence.
        seconds_lost: from the failure's detection until training went on, or while others waited for one that was late.
        steps_lost: those that were done and had to be done again; None where it isn't known.
        step: the one that training went on after, or that a fault struck before.
    """

    what: str
    seconds: float | None
    ranks: tuple[int, ...]
    message: str
    seconds_lost: float | None = None
    steps_lost: int | None = None
    step: int | None = None


def story(run: Run) -> list[Happening]:
    """Return all that happened, in the file's order."""
    times = [event["time"] for event in run.events if event.get("time") is not None]
    start = min([*times, run.summary.get("first_step_at") or float("inf")]) if times else 0.0
    return [_happening(event, start, run.events[:number]) for number, event in enumerate(run.events)]


def _happening(event: Row, start: float, before: Sequence[Row]) -> Happening:
    kind, time, step = str(event["event"]), event.get("time"), event.get("step")
    ranks = tuple(event.get("lost") or ([event["rank"]] if event.get("rank") is not None else []))
    steps_lost = event.get("steps_lost")
    if kind == "failure" and steps_lost is None:
        steps_lost = _steps_lost(ranks, step, before)
    return Happening(
        _AWAY.get(kind, kind),
        None if time is None else time - start,
        ranks,
        str(event.get("message", "")),
        None if kind == "returned" else event.get("seconds"),  # of one that is back, the others lost none
        steps_lost,
        step,
    )


def _steps_lost(ranks: Sequence[int], step: int | None, before: Sequence[Row]) -> int | None:
    """How far a run had come that went on after `step`: known where its ranks were killed on purpose, at a step."""
    killed = [
        event["step"]
        for event in before
        if event["event"] == "injected"
        and event.get("kind") in ("kill", "stop")
        and event.get("rank") in ranks
        and event.get("step") is not None
    ]
    return killed[-1] - step if killed and step is not None and killed[-1] >= step else None


def pauses(told: Sequence[Happening]) -> list[Span]:
    """Return the spans in which nobody got on: from each failure's detection, or until one that was late was given up."""
    return [
        (each.seconds, each.seconds + each.seconds_lost)
        if each.what == "lost"
        else (each.seconds - each.seconds_lost, each.seconds)
        for each in told
        if each.what in ("lost", "late") and each.seconds is not None and each.seconds_lost
    ]


def lanes(run: Run, told: Sequence[Happening], most: int = 32) -> dict[int, list[Span]]:
    """Return the spans in which each rank took part; of more than `most` ranks, only those whom something befell."""
    ranks = {rank for each in told for rank in each.ranks}
    if (run.ranks or 0) <= most:
        ranks |= set(range(run.ranks or 0))
    seconds = [each.seconds for each in told if each.seconds is not None] + [end for _, end in pauses(told)]
    end = max([*seconds, run.rows[-1]["seconds"] if run.rows else 0.0, 0.0])
    return {rank: list(_spans(rank, told, end)) for rank in sorted(ranks)}


def _spans(rank: int, told: Sequence[Happening], end: float) -> Iterator[Span]:
    since: float | None = 0.0
    for each in sorted((each for each in told if rank in each.ranks and each.seconds is not None), key=_when):
        if each.what in ("lost", "late") and since is not None:
            yield since, max(_when(each), since)
            since = None
        elif each.what == "returned" and since is None:
            since = _when(each)
    if since is not None:
        yield since, max(end, since)


def _when(each: Happening) -> float:
    return each.seconds or 0.0
