"""Reports on real runs: what they say is what the files say, and nothing in the files becomes markup."""

import json
import math
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[report]'")

from mpisign import plotting, survival
from mpisign.errors import DataError
from mpisign.report import Run, named, page, read
from mpisign.report.__main__ import main
from mpisign.report.columns import columns, has, phases, shares
from mpisign.report.data import parts
from mpisign.report.settings import split
from mpisign.report.story import lanes, pauses, story
from mpisign.tasks.digits import Digits
from mpisign.tasks.partition import partition
from mpisign.train import main as train

MOST = 5_000_000  # bytes, of issue and page alike

SIXTEEN = "--simulate=16 --steps=8 --epochs=4 --batch-size=45 --partition=dirichlet:0.3 --attack=invert --byzantine=3"
FAILING = "--simulate=4 --steps=24 --batch-size=45 --inject=kill:rank=3,step=9;kill:rank=0,step=14;nan:rank=1,step=4"
RELAYED = "--simulate=4 --steps=16 --batch-size=45 --algorithm=relaysgd --topology=chain"
QUIET = "--simulate=4 --steps=16 --batch-size=45"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Folders of four runs that are done, and of one under way."""
    top = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survival, "PERIOD", 0)
        for name, flags in {"sixteen": SIXTEEN, "failing": FAILING, "relayed": RELAYED, "quiet": QUIET}.items():
            assert train([*flags.split(" "), f"--output={top / name}"]) == 0
    going = shutil.copytree(top / "sixteen", top / "going")
    (going / "summary.json").unlink()
    with (going / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 5, "step": 1')
    return {folder.name: folder for folder in top.iterdir()}


def all_of(runs: dict[str, Path], *names: str) -> list[Run]:
    return [read(folder, name) for name, folder in named([runs[name] for name in names]).items()]


class Checked(HTMLParser):
    """Fails where a tag is not closed, and notes all tags, attributes, and what is said."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"{self.open} are never closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert "svg" in self.open, f"<{tag}/> outside a picture"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        self.said.append(data)

    def having(self, **wanted: str) -> list[dict[str, str | None]]:
        return [found for _, found in self.tags if all(found.get(key) == value for key, value in wanted.items())]


def checked(text: str) -> Checked:
    """What every page must be: small, whole, by itself, with names that are unique and pictures that are told."""
    assert len(text.encode()) <= MOST
    found = Checked(text)
    assert not re.search(r"https?:|@import|url\((?!['\"]?#)|srcset|<script|<link|<iframe|\son\w+=", text)
    for tag, attributes in found.tags:
        for key in ("src", "href"):
            assert (attributes.get(key) or "#").startswith(("#", "data:image/png")), (tag, attributes)
    ids = Counter(attributes["id"] for _, attributes in found.tags if "id" in attributes)
    assert ids.most_common(1)[0][1] == 1, ids.most_common(3)
    for wanted in re.findall(r"(?:url\(|href=\")#([^)\"]+)", text):
        assert wanted in ids, f"#{wanted} points nowhere"
    assert all(found.get("aria-label") for found in found.having(role="img"))
    assert all(attributes.get("alt") for tag, attributes in found.tags if tag == "img")
    return found


def pictures_of(found: Checked) -> list[str]:
    return [str(attributes["aria-label"]).partition(":")[0] for attributes in found.having(role="img")]


CURVES = [
    f"{y} against {x}" for y in ("test accuracy", "test loss", "train loss") for x in ("steps", "bytes", "seconds")
]


def test_a_report_of_sixteen_ranks_has_all_its_pictures(runs) -> None:
    found = checked(page(all_of(runs, "sixteen")).html())
    agreed = ["agreement against steps", "sixteen"]
    assert pictures_of(found) == [*CURVES, "seconds by phase. sixteen", *agreed, "sixteen"]
    assert "Nothing happened." in found.said
    assert "ranks that lie: 13, 14, 15" in str(found.tags)


def test_a_report_of_failures_tells_them(runs) -> None:
    found = checked(page(all_of(runs, "failing")).html())
    assert "failing" in pictures_of(found)
    assert "rank 3: kill, as --inject says" in found.said
    assert any(text.startswith("rank 0 died: 2 of 4 go on after step") for text in found.said)


@pytest.mark.slow
def test_a_report_compares_four_runs(runs) -> None:
    report = page(all_of(runs, "sixteen", "failing", "relayed", "quiet"))
    found = checked(report.html())
    shown = pictures_of(found)
    assert shown[:9] == CURVES
    assert {"consensus distance against steps", "worst worker's accuracy against steps"} <= {*shown}
    assert len(shown) == len(report.pictures) == len({picture.key for picture in report.pictures})
    assert {"--algorithm", "--topology"} <= {*found.said}


@pytest.mark.slow
@pytest.mark.launches
@pytest.mark.parametrize(
    "names", [["sixteen"], ["failing"], ["going"], ["sixteen", "failing", "relayed", "quiet"]], ids="+".join
)
def test_a_report_opens_in_a_browser_with_nothing_broken_and_nothing_fetched(names, runs, browser, tmp_path) -> None:
    report = page(all_of(runs, *names))
    (tmp_path / "report.html").write_text(report.html(), "utf-8")
    browser.open((tmp_path / "report.html").as_uri())
    drawn = browser.value(
        "[...document.querySelectorAll('figure svg, figure img')].filter(e => e.clientWidth > 50).length"
    )
    assert drawn == len(report.pictures) > 5
    assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.wrong == []


def test_a_report_of_a_run_under_way_says_so_and_leaves_out_what_nobody_knows(runs) -> None:
    found = checked(page(all_of(runs, "going")).html())
    assert pictures_of(found) == [*CURVES, "agreement against steps", "going"]
    assert "no end yet: epoch 4 of 4" in found.said
    assert "Known at the end of a run only; not yet of going." in found.said


def test_a_run_without_an_epoch_can_be_reported(runs, tmp_path: Path) -> None:
    shutil.copy(runs["quiet"] / "config.toml", tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    report = page([read(tmp_path, "new")])
    checked(report.html())
    assert all(picture.png() for picture in report.pictures)


def test_a_run_that_diverged_can_be_reported(runs, tmp_path: Path) -> None:
    folder = shutil.copytree(runs["quiet"], tmp_path / "diverged")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[-1] |= {"train_loss": math.nan, "test_loss": math.inf}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    checked(page([read(folder)]).html())


# Numbers


def test_columns_are_those_of_the_file(runs) -> None:
    run = read(runs["relayed"])
    rows = [json.loads(line) for line in (runs["relayed"] / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((runs["relayed"] / "summary.json").read_text())
    found = columns(run)
    for column, key in {
        "steps": "step",
        "test accuracy": "test_accuracy",
        "consensus distance": "consensus_distance",
    }.items():
        assert found[column] == [row[key] for row in rows]
    assert found["bytes"][-1] == summary["bytes_sent"]
    assert not has(run, "agreement")
    assert columns(read(runs["going"]))["bytes"] == [row["bytes_sent"] for row in read(runs["going"]).rows]


def test_a_server_is_not_taken_for_a_worker(runs) -> None:
    run = read(runs["sixteen"])
    assert run.summary["bytes_sent_most"] > 10 * columns(run)["bytes"][-1]  # rank 0 answers fifteen others
    assert columns(run)["bytes"][-1] == run.summary["bytes_up_per_step"] * run.rows[-1]["step"]


def test_phases_add_up_to_the_seconds_of_the_run(runs) -> None:
    found = phases(read(runs["sixteen"]))
    assert sum(found.values()) == pytest.approx(read(runs["sixteen"]).summary["seconds"])
    assert phases(read(runs["going"])) == {}


def test_curves_draw_the_numbers_in_each_runs_own_colour(runs) -> None:
    several = all_of(runs, "sixteen", "relayed", "quiet")
    drawn = {picture.key: picture.draw(False).axes[0] for picture in page(several).pictures if "-steps" in picture.key}
    for run, line, tint in zip(several, drawn["test-loss-steps"].lines, plotting.COLORS, strict=False):
        assert line.get_xdata().tolist() == columns(run)["steps"]
        assert line.get_ydata().tolist() == columns(run)["test loss"]
        assert line.get_color() == tint
    apart = [line for line in drawn["consensus-distance-steps"].lines if len(line.get_xdata())]
    assert [line.get_color() for line in apart] == [plotting.COLORS[1]]  # relayed alone, in its colour


def test_bars_of_agreement_are_the_summarys(runs) -> None:
    run = read(runs["sixteen"])
    assert shares(run) == run.summary["agreement_by_rank"]
    (picture,) = [picture for picture in page([run]).pictures if picture.key == "agreement-1"]
    heights = [bar.get_height() for bar in picture.draw(True).axes[0].patches][:16]
    assert heights == pytest.approx([100 * share for share in shares(run)])


def test_classes_are_those_that_were_dealt(runs) -> None:
    labels = Digits().read(None).y_train
    found = parts(read(runs["sixteen"]), {})
    for mine, dealt in zip(found.of_workers, partition("dirichlet:0.3", labels, 16, 0), strict=True):
        np.testing.assert_array_equal(mine, dealt)
    np.testing.assert_array_equal(found.labels, labels)


def test_a_story_tells_what_failures_cost(runs) -> None:
    run = read(runs["failing"])
    told = story(run)
    assert [each.what for each in told] == ["injected", "injected", "lost", "injected", "lost"]
    assert [each.ranks for each in told] == [(1,), (3,), (3,), (0,), (0,)]
    events = [event for event in run.events if event["event"] == "failure"]
    for each, event, struck in zip(told[2::2], events, (9, 14), strict=True):
        assert each.seconds_lost == event["seconds"]
        assert each.steps_lost == struck - event["step"] >= 0
    starts = [each.seconds for each in told]
    assert starts == sorted(starts)
    assert starts[0] >= 0
    assert [end - start for start, end in pauses(told)] == pytest.approx([event["seconds"] for event in events])
    spans = lanes(run, told)
    assert [len(spans[rank]) for rank in range(4)] == [1, 1, 1, 1]
    assert spans[3][0][1] < spans[0][0][1] < spans[1][0][1] == spans[2][0][1]


def test_only_a_fault_that_kills_says_how_far_a_run_had_come(runs, tmp_path: Path) -> None:
    folder = shutil.copytree(runs["quiet"], tmp_path / "killed")
    failure = {"event": "failure", "lost": [1], "ranks_left": [0, 2, 3], "step": 0, "time": 2.0, "seconds": 0.5}

    def steps_lost(**before: object) -> int | None:
        lines = [{"event": "injected", "time": 1.0, **before}, failure]
        (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return story(read(folder))[1].steps_lost

    assert steps_lost(kind="kill", rank=1, step=5) == 5
    assert steps_lost(kind="kill", rank=1, step=0) == 0
    assert steps_lost(kind="nan", rank=1, step=5) is None
    assert steps_lost(kind="kill", rank=2, step=5) is None
    assert steps_lost(kind="kill", rank=1) is None


def test_who_was_late_and_returned_has_two_spans(runs, tmp_path: Path) -> None:
    folder = shutil.copytree(runs["quiet"], tmp_path / "late")
    late, returned = (
        {"event": "late", "time": 100.0, "seconds": 0.5},
        {"event": "returned", "time": 102.5, "seconds": 3.0},
    )
    lines = [json.dumps(event | {"rank": 2, "step": 3, "message": "m"}) for event in (late, returned)]
    summary = json.loads((folder / "summary.json").read_text()) | {"first_step_at": 98.0}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "events.jsonl").write_text("\n".join([*lines, '{"event": "retu']))
    run = read(folder)
    told = story(run)
    assert [(each.what, each.seconds, each.seconds_lost) for each in told] == [
        ("late", 2, 0.5),
        ("returned", 4.5, None),
    ]
    assert pauses(told) == [(1.5, 2)]  # half a second of waiting until it was given up
    assert lanes(run, told)[2] == [(0, 2), (4.5, max(4.5, run.rows[-1]["seconds"]))]
    checked(page([run]).html())


def test_settings_that_differ_stand_apart(runs) -> None:
    differ, same = split(all_of(runs, "relayed", "quiet"))
    assert [(flag, values) for _, flag, values in differ] == [
        ("--algorithm", ["relaysgd", "signum"]),
        ("--topology", ["chain", "by default"]),
    ]
    assert "--output" in [flag for _, flag, _ in same]
    alone = {flag for _, flag, _ in split(all_of(runs, "quiet"))[0]}
    assert alone == {"--simulate", "--steps", "--batch-size"}


# Nothing from a file becomes markup


def test_no_text_of_a_run_becomes_markup(runs, tmp_path: Path) -> None:
    evil = "<script>alert(1)<i> &amp; $\\frac$ \"'"
    folder = shutil.copytree(runs["failing"], tmp_path / "<script>alert(1)<" / "i> &amp; $\\frac$ \"'")
    event = {"event": "<b>late", "rank": 1, "time": 1.0, "message": f"</td>{evil}"}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(
        config.replace('algorithm = "signum"', "algorithm = '''<img src=x onerror=\"1\">:a'''")
    )
    other = shutil.copytree(folder, tmp_path / "b" / folder.name)
    several = [read(path, name) for name, path in named([folder, other]).items()]
    report = page(several)
    text = report.html()
    found = Checked(text)
    assert "<script" not in text
    assert "<img" not in text
    assert f"</td>{evil}" in found.said
    assert '<img src=x onerror="1">:a' in found.said
    assert not [tag for tag, attributes in found.tags if tag in ("script", "i", "b") or "onerror" in attributes]
    assert report.pictures[0].png()  # with a legend, in which a name is no formula


def test_the_page_forbids_scripts_and_the_network(runs) -> None:
    found = checked(page(all_of(runs, "quiet")).html())
    (policy,) = found.having(**{"http-equiv": "Content-Security-Policy"})
    assert str(policy["content"]).startswith("default-src 'none'")


# Size


def test_pictures_that_are_too_long_as_lines_become_pixels(runs) -> None:
    (picture, *_) = page(all_of(runs, "quiet")).pictures
    assert picture.markup(10).startswith('<figure><img src="data:image/png;base64,')
    assert "<svg" in picture.markup(MOST)


@pytest.mark.slow
def test_long_runs_of_many_fit_into_a_page(runs) -> None:
    run = read(runs["sixteen"])
    rows = [
        run.rows[0] | {"step": step, "test_loss": math.sin(step**2), "train_loss": step % 7} for step in range(1, 4001)
    ]
    several = [Run(f"run {n}", run.folder, run.settings, rows, run.events, run.summary) for n in range(8)]
    checked(page(several).html())


# The command


@pytest.mark.slow
def test_the_command_writes_a_page_and_pictures_and_spares_what_is_there(
    runs, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(runs["quiet"]), "--png", "pictures"]) == 0
    assert capsys.readouterr().out.split() == ["report.html", "pictures"]
    checked((tmp_path / "report.html").read_text())
    drawn = sorted((tmp_path / "pictures").iterdir())
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    assert {"test-accuracy-bytes.png", "phases.png", "agreement-1.png", "classes-1.png"} <= {
        file.name for file in drawn
    }
    (tmp_path / "report.html").write_text("mine")
    assert main([str(runs["quiet"])]) == 2
    assert (
        capsys.readouterr().err == "mpisign.report: report.html is there already: give another name, or --overwrite\n"
    )
    assert (tmp_path / "report.html").read_text() == "mine"
    assert main([str(runs["quiet"]), "-o", "other.html", "--png", "pictures"]) == 2
    assert not (tmp_path / "other.html").exists()
    assert main([str(runs["quiet"]), "--overwrite"]) == 0
    checked((tmp_path / "report.html").read_text())


DAMAGES = {
    "config.toml is missing": ("config.toml", None, "no config.toml"),
    "metrics are missing": ("metrics.jsonl", None, "no metrics.jsonl"),
    "no TOML": ("config.toml", "[run", "not a TOML file"),
    "a table of another version": ("config.toml", "[sails]\na = 1", "of another version"),
    "a key of another version": ("config.toml", "[run]\nsails = 1", "of another version"),
    "a key elsewhere": ("config.toml", "[problem]\nlr = 1", "of another version"),
    "a key at the top": ("config.toml", "lr = 1", "of another version"),
    "no number": ("config.toml", '[run]\nseed = "a"', "wanted int"),
    "a broken line": ("metrics.jsonl", '{"epoch": 1\n', "line 1 is damaged"),
    "no object": ("metrics.jsonl", "[1]\n", "wanted an object"),
    "nested without end": ("metrics.jsonl", "[" * 100_000 + "\n", "is damaged"),
    "a column is missing": ("metrics.jsonl", '{"epoch": 1}\n', "step is 'None'"),
    "no text": ("metrics.jsonl", b"\xff\n", "no text in UTF-8"),
    "an event without a name": ("events.jsonl", '{"time": 1}\n', "line 1 is damaged"),
    "an event at no time": ("events.jsonl", '{"event": "failure", "time": "now"}\n', "time is 'now'"),
    "an event at a time that never is": ("events.jsonl", '{"event": "failure", "time": Infinity}\n', "time is 'inf'"),
    "an event of nobody": ("events.jsonl", '{"event": "failure", "lost": 3}\n', "lost is '3'"),
    "half a summary": ("summary.json", '{"steps": 1', "summary.json is damaged"),
    "a summary of something else": ("summary.json", "{}", "steps is 'None'"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_said_in_one_line(name: str, runs, tmp_path: Path, capsys) -> None:
    file, content, told = DAMAGES[name]
    folder = shutil.copytree(runs["quiet"], tmp_path / "run")
    (folder / file).unlink(missing_ok=True)
    if content is not None:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main([str(folder), "-o", str(tmp_path / "r.html")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mpisign.report: ")
    assert err.count("\n") == 1
    assert told in err
    assert file in err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "key, value",
    [("agreement_by_rank", [2.0]), ("byzantine", [99]), ("quarantined", {"a": 1}), ("seconds_by_phase", 3)],
)
def test_a_summary_that_cannot_be_is_damaged(key: str, value: object, runs, tmp_path: Path, capsys) -> None:
    folder = shutil.copytree(runs["quiet"], tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {key: value}))
    assert main([str(folder), "-o", str(tmp_path / "r.html")]) == 2
    assert "summary.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, told", [([], "RUN"), (["nowhere"], "no such folder"), (["a", "--nothing"], "--help")]
)
def test_a_mistake_in_the_command_is_said_in_one_line(arguments: list[str], told: str, capsys) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_without_matplotlib_the_command_says_what_to_install(capsys, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["anything"]) == 2
    assert "pip install 'mpisign[report]'" in capsys.readouterr().err


def test_a_run_that_needs_what_is_not_here_is_reported_without_its_classes(runs, tmp_path: Path) -> None:
    folder = shutil.copytree(runs["quiet"], tmp_path / "mnist")
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace('task = "digits"', 'task = "mnist"\ndata = "/nowhere"'))
    found = checked(page([read(folder)]).html())
    assert any(text.startswith("mnist: left out, since") for text in found.said)
    (folder / "config.toml").write_text(config.replace('task = "digits"', 'task = "nobodys.py:Task"'))
    with pytest.raises(DataError, match=r"the task nobodys\.py:Task is none of the built-in ones"):
        parts(read(folder), {})


def test_runs_are_named_by_as_much_as_tells_them_apart() -> None:
    found = named([Path("/x/a/run"), Path("/x/b/run"), Path("/x/c"), Path("/x/a/run")])
    assert found == {"a/run": Path("/x/a/run"), "b/run": Path("/x/b/run"), "c": Path("/x/c")}
