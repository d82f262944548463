import io
import json
import subprocess
import sys

import pytest
from launching import clean_environment

from mpisign.tracking import Console

METRICS = {"epoch": 1, "step": 3, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": 0.5, "seconds": 0.1}


class Gone(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_outlives_the_reader_of_its_output(tmp_path) -> None:
    console = Console(tmp_path, stream=Gone())
    console.begin(1, 3)
    console.epoch(METRICS)
    console.epoch(METRICS)
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [3, 3]


@pytest.mark.parametrize("redirection", ["| head -1", ">&-", "> /dev/full"])
def test_results_are_written_whatever_becomes_of_the_output(redirection: str, tmp_path) -> None:
    command = f"{sys.executable} -m mpisign.train --simulate 2 --steps 2 --output {tmp_path}/run {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=clean_environment(), timeout=60)
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 2


def test_lines_go_where_they_are_asked_to() -> None:
    stream = io.StringIO()
    console = Console(stream=stream)
    console.begin(1, 3)
    console.epoch(METRICS)
    assert stream.getvalue().startswith("epoch 1/1  step     3  loss 1.0000")
