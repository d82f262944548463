"""What tests need to start programs of their own."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def clean_environment() -> dict[str, str]:
    """This process's environment without what its own launcher, if any, has put there."""
    launcher = ("PMI_", "PMIX_", "OMPI_COMM_", "MPI_LOCAL", "HYDRA_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(launcher)}


@contextmanager
def job(command: Sequence[str], seconds: float, stderr: int = subprocess.STDOUT) -> Iterator[Any]:
    """A program in a process group of its own, which is killed after so many seconds, and when the context is left."""
    with subprocess.Popen(
        command,
        text=True,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=clean_environment(),
        start_new_session=True,
    ) as process:
        give_up = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
        give_up.start()
        try:
            yield process
        finally:
            give_up.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
