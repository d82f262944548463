"""The page: what each of its sections says and shows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from string import Template

from .. import __version__
from ..errors import DataError
from . import drawings, tables
from .columns import has, phases, shares
from .data import Parts, parts
from .markup import Markup, element, together
from .pictures import Picture
from .runs import Run
from .settings import split

MOST = 5_000_000
"""Bytes of a page, at most; that is what its pictures are allotted."""


class Page:
    """A report on runs, of one name each.

    Attributes:
        pictures: all that it shows.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs, self.pictures = runs, list[Picture]()
        self._notes: list[tuple[str, str]] = []
        self._classes = list(self._dealt())
        self._panels = {
            y: [drawings.curves(runs, y, x) for x in drawings.AGAINST]
            for y in ("test accuracy", "test loss", "train loss")
        }
        own = [y for y in ("consensus distance", "worst worker's accuracy") if any(has(run, y) for run in runs)]
        self._apart = [drawings.curves(runs, y, "steps") for y in own]
        self._time = [drawings.time_by_phase(runs)] if any(phases(run) for run in runs) else []
        self._agreement = [drawings.agreement(run, number) for number, run in self._of(shares)]
        self._agreed = (
            [drawings.curves(runs, "agreement", "steps")] if any(has(run, "agreement") for run in runs) else []
        )
        self._failures = {run.name: drawings.failures(run, number) for number, run in self._of(lambda run: run.events)}
        groups = (self._time, self._agreed, self._agreement, self._apart, self._classes, self._failures.values())
        for group in (*self._panels.values(), *groups):
            self.pictures += group

    def _of(self, what: Callable[[Run], object]) -> Iterator[tuple[int, Run]]:
        return ((number, run) for number, run in enumerate(self.runs, start=1) if what(run))

    def _dealt(self) -> Iterator[Picture]:
        """A picture for each way in which data were dealt; notes tell of runs that have none."""
        known: dict[object, object] = {}
        found: dict[object, tuple[list[str], Parts]] = {}
        for run in self.runs:
            try:
                dealt = parts(run, known)
            except DataError as error:
                self._notes.append((run.name, str(error)))
                continue
            key = (*(run.settings[name] for name in ("task", "data", "partition", "seed")), run.ranks, dealt.first)
            found.setdefault(key, ([], dealt))[0].append(run.name)
        for number, (names, dealt) in enumerate(found.values(), start=1):
            yield drawings.classes(names, dealt, number)

    def html(self) -> str:
        """Return the page, with all that it needs."""
        self._most = int(0.8 * MOST / max(len(self.pictures), 1))
        names = ", ".join(run.name for run in self.runs)
        sections = [
            ("glance", "At a glance", tables.glance(self.runs)),
            ("curves", "Accuracy and loss, and what they cost", self._curves()),
            ("time", "Where the time went", self._where_the_time_went()),
            ("agreement", "Who agrees with the majority", self._who_agrees()),
            ("apart", "Models of their own", self._models_apart()),
            ("classes", "Who holds which classes", self._who_holds()),
            ("failures", "Failures and recoveries", self._what_befell()),
            ("settings", "Settings", self._settings()),
        ]
        links = (element("li", element("a", heading, href=f"#{key}")) for key, heading, _ in sections)
        body = (element("section", element("h2", heading, id=key), content) for key, heading, content in sections)
        template = Template((resources.files(__package__) / "page.html").read_text("utf-8"))
        count = f"{len(self.runs)} run{'s' * (len(self.runs) != 1)}"
        made = f"{count}, mpisign {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return template.substitute(
            title=element("title", f"Runs: {names}"),
            made=element("p", made, class_="made"),
            links=element("ul", *links),
            sections=together(*body),
        )

    def _shown(self, pictures: Iterable[Picture], kind: str = "rows") -> Markup:
        return element("div", *(picture.markup(self._most) for picture in pictures), class_=kind)

    # ---- sections ----

    def _curves(self) -> Markup:
        groups = [together(element("h3", y), self._shown(panels, "panels")) for y, panels in self._panels.items()]
        return together(self._legend(), *groups, element("p", _about_bytes(self.runs), class_="note"))

    def _where_the_time_went(self) -> Markup:
        note = "Means over ranks; “other” is what no phase counts, such as waiting for a core that other ranks have."
        missing = [run.name for run in self.runs if not phases(run)]
        late = _note(f"Known at the end of a run only; not yet of {', '.join(missing)}.") if missing else ""
        return together(self._shown(self._time), _note(note) if self._time else "", late)

    def _who_agrees(self) -> Markup:
        if not self._agreement and not self._agreed:
            return _note("No ballots here: no run votes with signs, or none has said yet.")
        numbers = [_fold(f"numbers of {run.name}", tables.agreement(run)) for run in self.runs if shares(run)]
        note = "The share of a rank’s signs that were the majority’s. Who lies stands below one half, as long as most are honest."
        return together(self._shown([*self._agreed, *self._agreement]), _note(note), *numbers)

    def _models_apart(self) -> Markup:
        if not self._apart:
            return _note("In these runs all ranks have one model.")
        return together(self._legend(), self._shown(self._apart, "panels"))

    def _who_holds(self) -> Markup:
        notes = (_note(f"{name}: left out, since {reason}.") for name, reason in self._notes)
        return together(self._shown(self._classes), *notes)

    def _what_befell(self) -> Markup:
        if not self._failures:
            return _note("Nothing happened.")
        found = []
        for run in self.runs:
            if picture := self._failures.get(run.name):
                found += [element("h3", run.name), self._shown([picture]), tables.happenings(run)]
        note = "Seconds since the first step, or since the first happening where no summary.json says when that was."
        return together(*found, _note(note))

    def _settings(self) -> Markup:
        differ, same = split(self.runs)
        what = "that differ" if len(self.runs) > 1 else "that are not the defaults"
        names = [run.name for run in self.runs]
        first = tables.values(differ, names, f"settings {what}") if differ else _note(f"There are none {what}.")
        rest = tables.values(same, names, "all other settings")
        return together(element("h3", f"Those {what}"), first, _fold(f"The other {len(same)}", rest))

    def _legend(self) -> Markup:
        if len(self.runs) == 1:
            return Markup()
        return element(
            "ul", *(element("li", tables.chip(n, run.name)) for n, run in enumerate(self.runs)), class_="legend"
        )


def page(runs: Sequence[Run]) -> Page:
    """Return the report on runs, whose names differ."""
    return Page(runs)


def _about_bytes(runs: Sequence[Run]) -> str:
    early = [run.name for run in runs if not run.is_done]
    told = "Bytes are those that a worker sends, the median one, spread evenly over the steps."
    if not early:
        return told
    return f"{told} Where a run has no end yet ({', '.join(early)}), they are rank 0’s, the busiest if it counts the ballots."


def _fold(title: str, content: Markup) -> Markup:
    return element("details", element("summary", title), content)


def _note(text: str) -> Markup:
    return element("p", text, class_="note")
