"""Ranks that die, stop or are told to stop, for real."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import job

STEPS = ["--steps", "60", "--batch-size", "48"]


@pytest.fixture
def ulfm(mpirun) -> list[str]:
    """The command line of an mpirun that outlives its ranks."""
    tried = subprocess.run([mpirun.path, "--version"], capture_output=True, text=True)
    if "Open MPI" not in tried.stdout or " 5." not in tried.stdout:
        pytest.skip("only Open MPI 5 goes on without ranks that died")
    return [mpirun.path, "--with-ft", "ulfm"]


def run(
    command: list[str], ranks: int, folder: Path, *arguments: str
) -> tuple[int, str, dict[str, Any] | None, list[Any]]:
    command = [
        *command,
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpisign.train",
        *STEPS,
        "--output",
        str(folder),
        *arguments,
    ]
    with job(command, 150) as process:
        output, _ = process.communicate()
    return process.returncode, output, *written(folder)


def written(folder: Path) -> tuple[dict[str, Any] | None, list[Any]]:
    summary, events = folder / "summary.json", folder / "events.jsonl"
    rows = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
    return json.loads(summary.read_text()) if summary.exists() else None, rows


@pytest.mark.parametrize(
    "arguments, left",
    [
        (["--vote", "server", "--inject", "kill:rank=0,step=20"], [1, 2, 3]),
        (["--vote", "tree", "--inject", "kill:rank=1,step=30;kill:rank=2,step=30"], [0, 3]),
        (["--algorithm", "relaysgd", "--inject", "kill:rank=3,step=59"], [0, 1, 2]),
    ],
)
def test_the_others_go_on(ulfm, arguments: list[str], left: list[int], tmp_path: Path) -> None:
    code, output, summary, events = run(ulfm, 4, tmp_path, *arguments)
    assert code == 0, output
    assert summary is not None, output
    assert summary["ranks_left"] == left
    assert summary["steps"] == 60
    lost = [rank for event in events if event["event"] == "failure" for rank in event["lost"]]
    assert sorted(lost) == sorted({0, 1, 2, 3} - set(left))


@pytest.mark.parametrize("more", [[], ["--respawn-momentum", "checkpoint", "--checkpoint-every", "6"]])
def test_a_new_process_takes_the_place_of_a_dead_one(ulfm, more: list[str], tmp_path: Path) -> None:
    _, output, summary, events = run(ulfm, 3, tmp_path, "--respawn", "--inject", "kill:rank=1,step=20", *more)
    assert summary is not None, output  # the exit code of mpirun says nothing after a respawn
    assert summary["ranks_left"] == [0, 1, 2]
    assert [event["replaced"] for event in events if event["event"] == "failure"] == [[1]]


def test_who_ends_a_job_ends_those_that_have_joined_it_too(ulfm, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from mpisign import Signum\n\n\nclass Broken(Signum):\n    def update(self):\n"
        "        assert self.comm.rank or self.steps_taken < 40, 'on purpose'\n        return super().update()\n"
    )
    arguments = ["--respawn", "--inject", "kill:rank=1,step=20", "--algorithm", f"{tmp_path}/broken.py:Broken"]
    _, output, summary, events = run(ulfm, 3, tmp_path / "run", *arguments)
    assert output.count("AssertionError: on purpose") == 1
    assert [event["replaced"] for event in events if event["event"] == "failure"] == [[1]]
    assert summary is None


def test_a_job_without_ulfm_ends_and_goes_on_from_its_checkpoint(mpirun, tmp_path: Path) -> None:
    command = [mpirun.path]
    code, output, summary, _ = run(command, 3, tmp_path, "--checkpoint-every", "7", "--inject", "kill:rank=1,step=30")
    assert code != 0
    assert summary is None, output
    code, output, summary, _ = run(command, 3, tmp_path, "--resume", "auto")
    assert code == 0, output
    assert "epoch 1/6" not in output  # it went on from step 28, in the third of epochs of ten steps
    assert "epoch 6/6" in output
    assert summary is not None
    assert summary["steps"] == 60
    code, output, whole, _ = run(command, 3, tmp_path / "whole")
    assert whole is not None, output
    assert summary["checksum"] == whole["checksum"]


def test_what_goes_wrong_on_one_rank_alone_ends_the_job_with_its_reason(mpirun, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "step-00000007" / "rank-0001-of-0003.safetensors"
    (file / "in the way").mkdir(parents=True)
    arguments = ["--resume", "auto", "--checkpoint-every", "7", "--timeout", "60"]
    code, output, summary, _ = run([mpirun.path], 3, tmp_path, *arguments)
    assert code == 1, output
    assert "rank 1 of 3" in output
    assert f"{file}: can't be written" in output
    assert "has got no further" not in output
    assert summary is None


def test_a_stopped_rank_ends_the_job_with_a_known_code(mpirun, tmp_path: Path) -> None:
    arguments = ["--vote", "sharded", "--timeout", "5", "--inject", "stop:rank=1,step=20"]
    code, output, summary, _ = run([mpirun.path], 3, tmp_path, *arguments)
    assert code == 75, output
    assert "has got no further for" in output
    assert summary is None


def test_sigusr1_asks_for_a_checkpoint_and_for_being_started_again(mpirun, tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path), "--epochs", "100000", "--batch-size", "48"]
    command = [mpirun.path, "-n", "3", sys.executable, "-m", "mpisign.train", *arguments]
    with job(command, 100) as process:
        assert "epoch" in process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate()
    assert process.returncode == 85, output
    assert output.count("all ranks have written a checkpoint") == 1
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    assert len(list(checkpoint.iterdir())) == 3
