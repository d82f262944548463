"""What the pages show works: Python runs, command lines are understood, and files and names that are told of exist."""

import ast
import functools
import importlib
import importlib.util
import json
import re
import shlex
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import mpisign
from mpisign import comm, options
from mpisign.report.__main__ import _parser as report_parser
from mpisign.topology.__main__ import _parser as topology_parser

ROOT = Path(__file__).parents[1]
WRITTEN = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.relative_to(ROOT / "docs").parts[0][0] != "_")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
SLOW = {
    "docs/extending.md",
    "docs/index.md",
    "docs/recipes/own-model.md",
    "docs/recipes/unreliable.md",
}  # over three seconds

GIVEN = {"README.md": "import torch\nmodel = torch.nn.Linear(3, 2)"}
"""What a page takes for granted before its first block."""

NOT_RUN = re.compile(r"<!-- not run: \S.*-->")
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n`]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


def name_of(path):
    return str(path.relative_to(ROOT))


each_page = pytest.mark.parametrize("path", PAGES, ids=name_of)


def blocks(path):
    """(first line's number, language, code, whether it stands behind a comment that says why it is not run)."""
    text = path.read_text()
    for found in FENCE.finditer(text):
        indent, _, language, code = found.groups()
        before = text[: found.start()].rstrip().rpartition("\n")[2]
        code = "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))
        yield text[: found.start()].count("\n") + 2, language, code, bool(NOT_RUN.fullmatch(before.strip()))


def python_of(path):
    return [(line, code, aside) for line, language, code, aside in blocks(path) if language == "python"]


# ---- Python ----


with_python = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if name_of(path) in SLOW else [], id=name_of(path))
        for path in PAGES
        if python_of(path)
    ],
)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A folder of its own, and one simulated rank wherever MPI's world would be taken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # blocks that are files import one another
    (rank,) = mpisign.simulate(1, lambda rank: rank)
    monkeypatch.setattr(
        "mpisign.algorithms.base.as_comm", lambda given=None: comm.as_comm(rank if given is None else given)
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)
    for name in [name for name, module in sys.modules.items() if is_below(tmp_path, module)]:
        del sys.modules[name]


def is_below(folder, module):
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))


@with_python
def test_a_page_s_python_runs_from_top_to_bottom(path, alone):
    page = types.ModuleType(f"page_{path.stem.replace('-', '_')}")
    sys.modules[page.__name__] = page  # classes look their module up
    names = vars(page)
    try:
        exec(GIVEN.get(name_of(path), ""), names)
        for line, code, aside in python_of(path):
            compiled = compile("\n" * (line - 1) + code, str(path), "exec")
            if aside:
                continue
            file = re.match(r"# (\S+\.py)\n", code)
            if file:  # a block that begins with a file's name is that file, too
                _write(alone / file[1], code)
            # of a file in the package: its relative imports
            names["__package__"] = ".".join(Path(file[1]).parts[:-1]) if file else ""
            exec(compiled, names)
    finally:
        del sys.modules[page.__name__]


def _write(file, code):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)


def test_what_is_not_run_says_why():
    for path in PAGES:
        asides = sum(aside for *_, aside in python_of(path))
        assert asides == len(NOT_RUN.findall(path.read_text())), f"{name_of(path)}: a comment with no Python behind it"


# ---- command lines ----


def commands(path):
    """(the line's number, words) of each shell command in blocks of the page, fenced or indented."""
    text, found = path.read_text(), []
    for line, language, code, _ in blocks(path):
        if language in ("", "console", "sh", "bash"):
            found += [(line + number, each) for number, each in enumerate(code.splitlines())]
    outside = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text).splitlines()
    found += [(number, each) for number, each in enumerate(outside, 1) if each.startswith("    ")]
    for number, each in _joined(found):
        each = each.strip().removeprefix("$ ")
        if re.match(r"(\w+=\S* )*(mpirun|srun|sbatch|python|make|pip|pytest) ", each) and "…" not in each:
            yield number, shlex.split(each, comments=True)


def _joined(lines):
    """Lines that end with a backslash, with what follows."""
    begun = ""
    for number, each in lines:
        begun += each.removesuffix("\\")
        if not each.endswith("\\"):
            yield number, begun
            begun = ""


def understood(words):
    """Let the program that is named take its arguments; none is started."""
    modules = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "-m"]
    arguments = words[words.index(modules[-1]) + 1 :] if modules else []
    batch = next((word for word in words if word.endswith(".sbatch")), None)
    for word in words:
        if re.match(r"(slurm|examples|benchmarks|tests)/", word):
            assert (ROOT / word).exists(), word
    for word, file in pairwise(words):
        if word == "--config":
            Path(file).touch()
    if modules[-1:] == ["mpisign.train"]:
        options.parse([word for word in arguments if word not in ("--help", "--version")])
    elif batch and batch != "slurm/tests.sbatch":
        options.parse(words[words.index(batch) + 1 :])
    elif modules[-1:] == ["mpisign.report"]:
        report_parser().parse_args(arguments)
    elif modules[-1:] == ["mpisign.topology"]:
        topology_parser().parse_args(arguments)
    elif modules and modules[-1].startswith("mpisign"):
        assert importlib.util.find_spec(modules[-1]), modules[-1]
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)


@each_page
def test_the_command_lines_of_a_page_are_understood(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for number, words in commands(path):
        try:
            understood(words)
        except (Exception, SystemExit) as error:
            pytest.fail(f"{name_of(path)}:{number}: {shlex.join(words)}: {error!r}")


def test_there_are_command_lines():
    assert sum(len(list(commands(path))) for path in PAGES) > 30


# ---- names ----


def inline_code(path):
    prose = FENCE.sub("", path.read_text())
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


def is_there(path, name):
    return any((folder / name).exists() for folder in (ROOT, ROOT / "mpisign", ROOT / "tests", path.parent))


@each_page
def test_files_that_a_page_names_exist(path):
    for code in inline_code(path):
        first = code.split("/")[0]
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/[\w-]+\.(py|md|json|png|ipynb|sbatch|sh)", code) or (
            re.fullmatch(r"[\w-]+(/[\w.-]+)*/", code) and first in ("mpisign", "docs", "tests", "slurm", "benchmarks")
        ):
            assert first in ("runs", "path") or is_there(path, code), code


@each_page
def test_what_a_page_names_of_mpisign_exists(path):
    for code in inline_code(path):
        dotted = re.match(r"mpisign(?:\.\w+)+(?=$|[(\[])", code)
        if dotted and not dotted[0].endswith(".py"):
            assert find(dotted[0]) is not None, code


def find(dotted):
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(lambda thing, name: getattr(thing, name, None), parts[cut:], found)
    return None


@each_page
def test_the_lines_of_code_that_a_page_shows_exist(path):
    text = path.read_text()
    for found in re.finditer(r"\{literalinclude\} (\S+)\n((?::[\w-]+:.*\n)*)", text):
        file = path.parent / found[1]
        assert file.is_file(), found[1]
        for wanted in re.findall(r":pyobject: (\S+)", found[2]):
            assert has_object(file, wanted), f"{found[1]}: no {wanted}"
        for marker in re.findall(r":(?:start|end)-(?:at|after|before): (.+)", found[2]):
            assert marker in file.read_text(), f"{found[1]}: no {marker}"


def has_object(file, dotted):
    body = ast.parse(file.read_text()).body
    for name in dotted.split("."):
        body = next((node.body for node in body if getattr(node, "name", None) == name), None)
        if body is None:
            return False
    return True


@each_page
def test_links_between_files_lead_somewhere(path):
    prose = FENCE.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        file, _, anchor = target.partition("#")
        if "://" in target or (ROOT / "docs" / "api") in path.parents:
            continue
        reached = (path.parent / file).resolve() if file else path
        assert reached.exists(), target
        if anchor and reached.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", reached.read_text(), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


def slug(heading):
    """As GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")


# ---- figures ----


def record(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def best(comparisons, title, name):
    (rows,) = (each["rows"] for each in comparisons if each["title"] == title)
    return next(row["best_seconds"] for row in rows if row["name"] == name)


def test_the_figures_by_which_to_choose_are_those_of_the_records():
    said = (ROOT / "docs" / "choose.md").read_text()
    voted = record("votes")["comparisons"]
    few = [1e3 * best(voted, "16 ranks, 100,000 coordinates", n) for n in ("server", "tree", "sharded", "hierarchical")]
    assert "{:.1f} ms a vote; `tree` {:.1f}, `sharded` {:.1f}, `hierarchical` {:.1f}".format(*few) in said
    all_reduces = "hierarchical", "MPI_Allreduce, float32", "gloo all-reduce, float32"
    many = [1e3 * best(voted, "2 ranks, 25,600,000 coordinates", name) for name in all_reduces]
    assert "{:.0f} ms; `MPI_Allreduce` in float32 {:.0f} ms, gloo {:.0f} ms".format(*many) in said

    stepped = next(each["title"] for each in record("step")["comparisons"] if "overhead" not in each["title"])
    names = "mpisign.Signum", "torch SGD, fused=True", "torch SGD, foreach=True"
    own, fused, foreach = (1e3 * best(record("step")["comparisons"], stepped, name) for name in names)
    assert f"{own:.1f} ms against {fused:.1f} ms" in said
    assert f"(foreach: {foreach:.1f})" in said

    messages = "messages of 50 ms, gradients as long"
    relayed = record("relay_step")
    late, soon = (1e3 * best(relayed["comparisons"], messages, name) for name in ("overlapped", "synchronous"))
    assert f"{late:.0f} ms a step in place of {soon:.0f}" in said
    assert (
        f"{relayed['figures']['overlapped, MPI in this machine: speed against synchronous']:.2f} times as fast" in said
    )

    liars = record("adversaries")["figures"]
    few, many, most = (liars[f"Signum, {who} inverting"]["test_accuracy"][0] for who in ("3 of 7", "7 of 15", "4 of 7"))
    assert f"3 of 7 say the opposite: {few:.3f}; 7 of 15: {many:.3f}; 4 of 7: {most:.3f}" in said
    assert f"MNIST, 15 workers: {liars['Signum, 0 of 15 inverting']['test_accuracy'][0]:.3f}" in said
    loud = liars["SGD, all-reduced, 7 of 15 inverting 8 times as loud: grid"]["lr"].values()
    assert f"8 times as loud: {max(each['test_accuracy'] for each in loud):.3f} at" in said

    figures = record("heterogeneous")["figures"]
    worst = {name: 100 * sum(each["test"]) / 3 for name, each in figures.items() if "test" in each}
    assert f"mean of 3 seeds: {worst['RelaySGD, double trees']:.1f} %; all-reduce {worst['all-reduce']:.1f}" in said
    assert f"the same: {worst['SGP, one-peer exponential']:.1f} %" in said
    others = [worst[name] for name in ("D², ring", "quasi-global, ring", "DP-SGD, ring")]
    assert "{:.1f} %; `QuasiGlobal` {:.1f}, `DPSGD` {:.1f}".format(*others) in said

    lost = record("lost_messages")["figures"]
    relay, d2 = (
        [100 * sum(lost[name][share]["test"]) / 2 for share in ("0", "0.01", "0.1")]
        for name in ("RelaySGD, double trees, refresh", "D², ring")
    )
    assert "{:.1f} % with no loss, {:.1f} with 1 %, {:.1f} with 10 %".format(*relay) in said
    assert "`D2` {:.1f}, {:.1f}, {:.1f}".format(*d2) in said
