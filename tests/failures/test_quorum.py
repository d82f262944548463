"""Runs with --quorum under mpirun: workers are stopped for a while or for ever, and the others go on."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from mpisign.checkpoints import load, steps
from mpisign.train import main

LONG = ["--steps", "400", "--epochs", "100", "--timeout", "60"]
SLOW = "slow:rank=0,factor=12"  # about 10 ms a step, so that a run outlasts the stops in it


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_where_nobody_is_late_the_bits_are_those_without_a_quorum(mpirun, tmp_path: Path) -> None:
    arguments = ["--epochs", "3", "--partition", "dirichlet:0.5", "--quarantine", "--output"]
    # all must be there: a machine that runs tests may keep a process waiting for longer than a deadline
    done = mpirun(5, "-m", "mpisign.train", "--quorum", "1", *arguments, tmp_path / "quorum")
    assert done.returncode == 0, done.stderr
    assert main(["--simulate", "5", *arguments, str(tmp_path / "plain")]) == 0
    quorum, plain = figures(tmp_path / "quorum"), figures(tmp_path / "plain")
    assert quorum["late"] == {"deadlines": 0, "seconds": 0.0, "missed": {}, "returns": {}}
    for name in (
        "checksum",
        "test_accuracy",
        "test_loss",
        "agreement",
        "agreement_by_rank",
        "bytes_sent",
        "bytes_sent_most",
    ):
        assert quorum[name] == plain[name], name


@pytest.mark.parametrize("late", ["drop", "count"])
def test_two_workers_stop_for_a_while_and_go_on_with_the_others(mpirun, tmp_path: Path, late: str) -> None:
    faults = f"{SLOW};stop:rank=2,step=30,for=2;stop:rank=4,step=60,for=2"
    done = mpirun(
        6, "-m", "mpisign.train", *LONG, "--quorum", "0.5", "--late", late, "--inject", faults,
        "--checkpoint-every", "5", "--checkpoints-kept", "80", "--output", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = [(event["event"], event["rank"]) for event in lines(tmp_path) if event["event"] in ("late", "returned")]
    for rank in (2, 4):
        assert [event for event, who in told if who == rank] == ["late", "returned"], told
    summary = figures(tmp_path)
    assert summary["steps"] == 400
    assert summary["late"]["deadlines"] <= len([event for event, _ in told if event == "late"])
    assert {"2", "4"} <= set(summary["late"]["missed"])
    assert summary["test_accuracy"] > 0.9
    assert summary["test_accuracy"] * 360 == pytest.approx(
        round(summary["test_accuracy"] * 360), abs=1e-9
    )  # all were judged
    found = {one.step: one for one in steps(tmp_path / "checkpoints")}
    without = [step for step, one in found.items() if one.problem is None and "common" in load(one, 2)[0]]
    assert without, "no checkpoint was written while rank 2 was away"
    assert found[400].problem is None
    assert "common" not in load(found[400], 2)[0]


def test_a_job_ends_well_although_a_worker_is_stopped_for_ever(mpirun, tmp_path: Path) -> None:
    done = mpirun(
        4, "-m", "mpisign.train", *LONG, "--quorum", "0.5", "--inject", "stop:rank=3,step=30", "--output", tmp_path
    )
    crashes = [-signal.SIGSEGV] if "MPI_ABORT was invoked" in done.stderr else []  # Open MPI's mpirun, after an abort
    assert done.returncode in (0, *crashes), done.stdout + done.stderr
    assert "rank 3 is away; the job ends without it, with code 0" in done.stderr
    late = figures(tmp_path)["late"]
    assert late["missed"]["3"] == 400 - 30
    assert late["returns"].get("3") is None
    assert late["deadlines"] == sum(event["event"] == "late" for event in lines(tmp_path))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["test_accuracy"] > 0.9  # of three quarters of the test samples


def test_a_server_that_is_stopped_ends_the_job(mpirun, tmp_path: Path) -> None:
    faults = "stop:rank=0,step=30"
    done = mpirun(
        3, "-m", "mpisign.train", *LONG[:-1], "4", "--quorum", "0.5", "--inject", faults, "--output", tmp_path
    )
    assert done.returncode == 75, done.stdout + done.stderr
    assert "has got no further for" in done.stderr
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--quorum", "0"], "wanted a share above 0 and at most 1"),
        (["--quorum", "0.5", "--algorithm", "relaysgd"], "use a sign vote"),
        (["--quorum", "0.5", "--algorithm", "ssdm"], "use a sign vote"),
        (["--quorum", "0.5", "--vote", "sharded"], "use --vote server"),
        (["--quorum", "0.5", "--overlap"], "leave out --overlap"),
        (["--late", "count"], "give --quorum 0.5"),
        (["--quorum", "0.5", "--late", "count", "--quarantine"], "use --late drop"),
    ],
)
def test_what_cannot_do_without_a_rank_is_refused_with_one_line(arguments: list[str], words: str, capsys) -> None:
    assert main(["--simulate", "2", "--steps", "1", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mpisign.train: ")
    assert words in err
    assert err.count("\n") == 1


def test_in_the_simulator_nobody_is_late(tmp_path: Path) -> None:
    assert main(["--simulate", "3", "--steps", "9", "--quorum", "0.5", "--output", str(tmp_path / "a")]) == 0
    assert main(["--simulate", "3", "--steps", "9", "--vote", "server", "--output", str(tmp_path / "b")]) == 0
    assert figures(tmp_path / "a")["checksum"] == figures(tmp_path / "b")["checksum"]
