"""`{results} step kernels`: the tables of these records in benchmarks/results, made while the site is built.

No figure of theirs is typed by hand. Without a name: all records that the page doesn't name.
"""

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results"

Row = Sequence[object]


class Results(Directive):
    """Tables of records, with what they compare, the machine and the date."""

    optional_arguments: ClassVar[int] = 20
    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Read the records, and build again when they change."""
        environment = self.state.document.settings.env
        environment.note_dependency(str(ROOT / "benchmarks" / "README.md"))
        named = self.arguments or _others(Path(environment.doc2path(environment.docname)).read_text())
        made: list[nodes.Node] = []
        for name in named:
            path = RECORDS / f"{name}.json"
            if not path.is_file():
                raise self.error(f"no record {path}")
            environment.note_dependency(str(path))
            made += list(_shown(name, json.loads(path.read_text())))
        return made


def _others(page: str) -> list[str]:
    named = {word for line in re.findall(r"\{results\}(.*)", page) for word in line.split()}
    return sorted(path.stem for path in RECORDS.glob("*.json") if path.stem not in named)


def _shown(name: str, record: dict[str, Any]) -> Iterator[nodes.Node]:
    yield _what(record.get("benchmark", name))
    for comparison in record.get("comparisons", []):
        yield nodes.paragraph("", "", nodes.strong(text=comparison["title"]))
        yield _comparison(comparison)
    yield from _figures(record.get("figures", {}))
    if record.get("checks"):
        yield _checks(record["checks"])
    yield _where(name, record)


def _what(name: str) -> nodes.paragraph:
    """What the benchmark measures, and against what: the words of benchmarks/README.md."""
    rows = re.findall(
        r"^\| `(\w+)\.py` \| (.*?) \| (.*?) \| .*\|$", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE
    )
    said = {script: (what.strip(), against.strip()) for script, what, against in rows}
    what, against = said.get(name, ("", ""))
    words = nodes.paragraph("", "", nodes.literal(text=f"benchmarks/{name}.py"))
    words += _inline(f": {what}" + (f". Against: {against}." if against else ".")) if what else []
    return words


def _inline(text: str) -> list[nodes.Node]:
    return [nodes.literal(text=part) if odd % 2 else nodes.Text(part) for odd, part in enumerate(text.split("`"))]


def _where(name: str, record: dict[str, Any]) -> nodes.paragraph:
    """Machine, date, versions, commit, and what would make one doubt."""
    machine, versions, load = (record.get(key, {}) for key in ("machine", "versions", "load_average"))
    packages = ", ".join(f"{key} {value}" for key, value in versions.items())
    words = [
        f"{record.get('date', '?')[:10]}, {machine.get('usable_cores', '?')} cores of an {machine.get('cpu', '?')}, {packages}",
        f"commit {record.get('commit', '?')[:10]}" + (", changed since" if record.get("dirty") else ""),
        f"load average {load.get('start', ['?'])[0]} at the start, {load.get('end', ['?'])[0]} at the end",
    ]
    return nodes.paragraph("", "", nodes.emphasis(text="; ".join(words) + "."), classes=["measured"])


def _comparison(comparison: dict[str, Any]) -> nodes.table:
    rows = comparison["rows"]
    unit, scale = next((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
                       if max(row["best_seconds"] for row in rows) * scale >= 1 or unit == "µs")  # fmt: skip
    speeds = any(row["nbytes"] for row in rows)
    table = []
    for row in rows:
        mark = " (baseline)" if row["name"] == comparison["baseline"] else ""
        speed = [f"{row['bytes_per_second'] / 1e9:.1f}" if row["nbytes"] else ""] if speeds else []
        times = [f"{row[key] * scale:.2f}" for key in ("best_seconds", "median_seconds")]
        table.append(
            [row["name"] + mark, *times, *speed, f"{row['time_ratio']:.2f}", f"{row['time_ratio_of_medians']:.2f}"]
        )
    head = ["", f"best, {unit}", f"median, {unit}", *(["GB/s"] if speeds else []), "time ÷ baseline's", "of medians"]
    return _table(head, table)


def _checks(checks: list[dict[str, Any]]) -> nodes.table:
    rows = []
    for check in checks:
        met, wanted = check["met"], f"{check['relation']} {check['target']:.4g}"
        verdict = nodes.inline(text="met" if met else "not met", classes=["met" if met else "missed"])
        rows.append([check["what"], f"{check['value']:.4g}", wanted, verdict])
    return _table(["target", "measured", "wanted", ""], rows)


def _figures(figures: dict[str, Any]) -> Iterator[nodes.Node]:
    """Tables of figures that have the same form: trained models, and rows of numbers."""
    if rows := list(_accuracies(figures)):
        yield _table(["", "learning rate", "test accuracy, each seed"], rows)
        return
    if counted := figures.get("rows"):
        yield _counts(counted)
    tables: dict[tuple[str, ...], list[Row]] = {}
    for name, figure in figures.items():
        if isinstance(figure, dict) and figure and all(isinstance(value, int | float) for value in figure.values()):
            tables.setdefault(tuple(figure), []).append([name, *map(_number, figure.values())])
    for head, same in tables.items():
        if len(same) > 1:
            yield _table(["", *(word.replace("_", " ") for word in head)], same)


def _counts(counted: list[dict[str, Any]]) -> nodes.table:
    """Trials of which so many were good, with the middle and the worst of what was measured on each."""
    measured = [key for key, value in counted[0].items() if isinstance(value, list)]
    names = [key for key, value in counted[0].items() if key not in ("good", "of", *measured)]
    rows = [
        [
            *(row[key] for key in names),
            f"{row['good']} of {row['of']}",
            *(f"{statistics.median(row[key]):.3f}, {max(row[key]):.3f}" if row[key] else "" for key in measured),
        ]
        for row in counted
    ]
    head = [key.replace("_", " ") for key in names]
    return _table([*head, "ended well", *(f"{key.replace('_', ' ')}: median, worst (s)" for key in measured)], rows)


def _accuracies(figures: dict[str, Any], before: str = "") -> Iterator[Row]:
    for name, figure in figures.items():
        if not isinstance(figure, dict):
            continue
        found = figure.get("test_accuracy", figure.get("test"))
        if isinstance(found, list) and "lr" in figure:
            yield [before + name, f"{figure['lr']:g}", " ".join(f"{value:.3f}" for value in found)]
        elif all(isinstance(part, dict) and "lr" in part for part in figure.values()):
            parts = {f"{float(share):.0%} lost": part for share, part in figure.items()}
            yield from _accuracies(parts, f"{name}, ")


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def _table(head: Row, rows: Sequence[Row]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *map(_row, rows))
    return nodes.table("", group, classes=["results", "colwidths-auto"])


def _row(cells: Row) -> nodes.row:
    inside = [cell if isinstance(cell, nodes.Node) else nodes.Text(str(cell)) for cell in cells]
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in inside))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
