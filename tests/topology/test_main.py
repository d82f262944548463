import subprocess
import sys

import pytest

from mpisign import registry
from mpisign.topology.__main__ import main


@pytest.fixture
def run(capsys):
    def run(*argv):
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def facts(out):
    found = {}
    for line in out.splitlines():
        title, _, value = line.partition(" ")
        found.setdefault(title, []).append(value.strip())
    return found


def test_a_tree_shows_its_facts_and_a_drawing(run):
    code, out, err = run("show", "chain:16")
    shown = facts(out)
    assert (code, err) == (0, "")
    assert [shown[title] for title in ("topology", "nodes", "edges", "diameter")] == [
        ["chain:16"],
        ["16"],
        ["15"],
        ["15"],
    ]
    assert shown["degrees"] == ["1 (2 ×), 2 (14 ×)"]
    assert shown["gossip"] == ["spectral gap 0.0128, smallest eigenvalue -0.3205 (above −1/3: D² converges)"]
    assert shown["relay"] == [
        "synchronous mean delay 4.3750 steps, κ 5.3750",
        "overlapped mean delay 5.3125 steps, κ 6.3125",
    ]
    assert out.endswith("\n\n0───1───2───3───4───5───6───7───8───9───10───11───12───13───14───15\n")


def test_two_trees_are_shown_one_after_the_other(run):
    _, out, _ = run("show", "double_binary_trees", "--size", "16")
    assert facts(out)["diameter"] == ["6", "6"]
    assert "all trees    degrees 2 (2 ×), 4 (14 ×)" in out
    assert out.count("─┬─") == 14


def test_a_ring_is_warned_of_for_d2_and_has_no_relay(run):
    _, out, _ = run("show", "ring:8")
    assert "smallest eigenvalue -0.3333 (not above −1/3: D² needs lazy weights)" in out
    assert "relay" not in out


def test_a_star_has_no_minus_zero(run):
    assert "smallest eigenvalue 0.0000 (" in run("show", "star:5")[1]


def test_directed_graphs_show_degrees_both_ways_or_their_offsets(run):
    _, out, _ = run("show", "exponential:6")
    assert facts(out)["out-degrees"] == facts(out)["in-degrees"] == ["3 (6 ×)"]
    _, out, _ = run("show", "one_peer_exponential:16:reference:2")
    assert facts(out)["offsets"] == ["1, 1, 4, 8, 1, 4, 4, 2, and again; reference order"]


def test_large_trees_are_not_drawn_as_text(run):
    assert "─" not in run("show", "chain:65")[1]


def test_the_list_has_everything_that_is_built_in_and_how_to_write_it(run):
    code, out, _ = run("list")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()[::2]] == list(registry.BUILT_IN["topology"])
    assert "star:N[:center=0]\n    `center` with all others" in out


@pytest.mark.parametrize(
    "argv, message",
    [
        (("show", "chian:3"), "topology chian:3: no such topology (did you mean 'chain'?)"),
        (("show", "chain"), "topology chain: n is missing: wanted chain:N"),
        (("show", "chain:3", "--size", "4"), "topology chain:3 has 3 nodes, but there are 4 ranks"),
        (("show", "chain:3", "--size", "four"), "--size: invalid int value: 'four'; --help lists the options"),
        (("show", "file:none.txt"), "none.txt: can't read the edges"),
        (("show",), "the following arguments are required: topology; --help"),
        ((), "show|list"),
        (("shwo", "chain:3"), "show|list: invalid choice: 'shwo'"),
        (("show", "chain:3", "--drow", "x.png"), "unrecognized arguments: --drow x.png"),
        (("show", "chain:3", "--draw", "x.doc"), "--draw x.doc: wanted a name that ends in .png, .svg, .pdf"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run, argv, message):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("mpisign.topology: ")
    assert message in err
    assert err.count("\n") == 1


def test_without_matplotlib_it_says_what_to_install(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run("show", "chain:3", "--draw", str(tmp_path / "a.png"))
    assert code == 2
    assert "no matplotlib here: pip install 'mpisign[tutorials]'" in err


@pytest.mark.parametrize("kind, magic", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_written(run, tmp_path, kind, magic):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"a.{kind}"
    code, out, err = run("show", "torus:3x3", "--draw", str(path))
    assert (code, err) == (0, "")
    assert out.endswith(f"picture      {path}\n")
    assert path.read_bytes().startswith(magic)
    code, _, err = run("show", "chain:3", "--draw", str(tmp_path / "no" / f"a.{kind}"))
    assert (code, "can't write it (No such file or directory)" in err) == (2, True)


def test_the_module_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "mpisign.topology", "show", "star:4"], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.endswith("0─┬─1\n  ├─2\n  └─3\n")
