"""Random corruptions are named, all of them; and the count can fail."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpisign.checkpoints import found, reading

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("corrupt_checkpoints")


def test_forty_random_corruptions_are_named(script: ModuleType) -> None:
    outcomes = script.corruptions(40, seed=1)
    assert len(outcomes) == 40
    assert {outcome.kind for outcome in outcomes} == set(script.KINDS)
    assert not [outcome for outcome in outcomes if not outcome.named]


def _nothing(*arguments: Any) -> None:
    """A check that finds nothing."""


@pytest.mark.parametrize(
    "module, check, kind",
    [
        (reading, "_check_data", "zeroed block"),
        (found, "_check_label", "swapped between ranks"),
    ],
)
def test_without_a_check_its_corruptions_are_counted_as_silent(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, module: ModuleType, check: str, kind: str
) -> None:
    monkeypatch.setattr(module, check, _nothing)
    monkeypatch.setattr(script, "KINDS", {kind: script.KINDS[kind]})
    outcomes = script.corruptions(4, seed=0)
    assert [outcome.named for outcome in outcomes] == [False] * 4
    assert all("SILENT" in outcome.said for outcome in outcomes)


@pytest.mark.parametrize("check, code", [("", 0), ("_check_label", 1)])
def test_the_script_prints_the_counts_and_fails_where_something_was_not_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check: str, code: int
) -> None:
    if check:
        monkeypatch.setattr(found, check, _nothing)
    monkeypatch.setattr(sys, "argv", ["corrupt_checkpoints.py", "--count", "13", "--seed", "2"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == code
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if " of    1" in line]) == 13
    assert (lines[-1] == "13 of 13 named") == (code == 0)
    assert any(line.startswith("NOT NAMED: swapped between ranks") for line in lines) == (code == 1)


def test_a_wrong_flag_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["corrupt_checkpoints.py", "--count", "0"])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "--count must be at least 1" in capsys.readouterr().err
