"""The tables of a report."""

from collections.abc import Sequence

from ..plotting.axes import color
from ..plotting.curves import LINES
from .columns import columns, shares
from .markup import Markup, element, together
from .runs import Run
from .settings import Line
from .story import story

_GLANCE = (
    *("run", "state", "algorithm", "ranks", "test accuracy", "test loss"),
    *("epochs", "steps", "seconds", "sent", "agreement"),
)
_DASHES = {"-": "none", "--": "7 3", "-.": "9 3 2 3", ":": "2 3"}


def glance(runs: Sequence[Run]) -> Markup:
    """Return what each run came to, in a line."""
    rows = [[chip(number, run.name), *_facts(run)] for number, run in enumerate(runs)]
    return _table(_GLANCE, rows, "what runs came to")


def chip(number: int, name: str) -> Markup:
    """Return a run's name with its line: colour and dashes as in the curves."""
    dashes = _DASHES[LINES[number % len(LINES)]]
    shown = color(number).replace("#000000", "currentColor")
    line = element("path", d="M1 5H29", stroke=shown, stroke_width=3, stroke_dasharray=dashes, fill="none")
    return together(element("svg", line, class_="chip", viewBox="0 0 30 10", aria_hidden="true"), " ", name)


def _facts(run: Run) -> list[object]:
    last, summary = (run.rows[-1] if run.rows else {}), run.summary
    state = "done" if run.is_done else f"no end yet: epoch {last.get('epoch', 0)} of {run.settings['epochs']}"
    sent = columns(run)["bytes"]
    return [
        state,
        run.settings["algorithm"],
        run.ranks or "unknown",
        _figure(last.get("test_accuracy"), "{:.4f}"),
        _figure(last.get("test_loss"), "{:.4f}"),
        _figure(last.get("epoch"), "{}"),
        _figure(last.get("step"), "{:,}"),
        _figure(summary.get("seconds", last.get("seconds")), "{:.2f}"),
        _bytes(sent[-1]) if sent else "none",
        _figure(summary.get("agreement", last.get("agreement")), "{:.1%}"),
    ]


def _figure(value: object, form: str, missing: str = "none") -> str:
    return missing if value is None else form.format(value)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def agreement(run: Run) -> Markup:
    """Return how often each rank agreed."""
    liars, out = run.summary.get("byzantine", []), run.summary.get("quarantined") or {}
    rows = [
        [
            rank,
            _figure(share, "{:.2%}"),
            "lies" if rank in liars else "honest",
            _figure(out.get(str(rank)), "since step {}", ""),
        ]
        for rank, share in enumerate(shares(run))
    ]
    return _table(("rank", "agrees", "is", "excluded"), rows, f"agreement by rank of {run.name}")


def happenings(run: Run) -> Markup:
    """Return what befell a run, a line each."""
    rows = [
        [
            _figure(each.seconds, "{:.2f}", "not said"),
            each.what,
            ", ".join(map(str, each.ranks)),
            _figure(each.step, "{}", ""),
            _figure(each.seconds_lost, "{:.2f}", ""),
            _figure(each.steps_lost, "{}", ""),
            each.message,
        ]
        for each in story(run)
    ]
    heads = ("at (s)", "what", "rank", "step", "seconds lost", "steps lost", "in words")
    return _table(heads, rows, f"what befell {run.name}")


def values(lines: Sequence[Line], names: Sequence[str], label: str) -> Markup:
    """Return settings, a line each, and a column for each run."""
    return _table(("setting", *names), [[element("code", flag), *each] for _, flag, each in lines], label)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], label: str) -> Markup:
    top = element("tr", *(element("th", head, scope="col") for head in heads))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", value) for value in row[1:])) for row in rows
    )
    table = element("table", element("thead", top), element("tbody", *body))
    return element("div", table, class_="scrolled", tabindex=0, role="region", aria_label=label)
