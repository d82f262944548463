"""Fixtures for all tests: quiet kernels, no global chance, and MPI tests that fail on all ranks or on none."""

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import chromium
import pytest
from launching import clean_environment

# before torch is imported: several ranks share the cores
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

MPI_DEADLINE = float(os.environ.get("MPISIGN_TEST_DEADLINE", "60"))
"""Seconds that a test under mpirun may take before every stack is dumped and the job ends."""


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; tests that want it skip where it is missing."""
    folder = Path(os.environ.get("MPISIGN_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}; set MPISIGN_SHARED_DATA to a folder with mnist.npz")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    """A headless browser; tests that want it skip where there is none, but not in CI."""
    program = chromium.find()
    if program is None and os.environ.get("CI") != "true":
        pytest.skip("no chromium or google-chrome in PATH")
    assert program is not None, "CI has no chromium: see .ci/run"
    with chromium.Chromium(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def global_chance_is_untouched() -> Iterator[None]:
    """Nothing that the test calls may draw from torch's global generator, or seed it."""
    import torch

    before = torch.get_rng_state().clone()
    yield
    assert torch.equal(before, torch.get_rng_state()), "torch's global generator was used or seeded"


@pytest.fixture(scope="session")
def mpirun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `mpirun -n ranks python …` with the mpirun of this Python's MPI, in a process group of its own."""
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("no mpirun beside this Python or in PATH")

    def run(
        ranks: int, *arguments: object, seconds: float = 100, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = [found, "-n", str(ranks), sys.executable, *map(str, arguments)]
        with subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**clean_environment(), **environment},
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                pytest.fail(f"{command} did not end in {seconds} s\n{out[-2000:]}\n{err[-2000:]}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    run.path = found  # type: ignore[attr-defined]
    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts mpirun takes seconds, and all cores; what needs a GPU is skipped where there is none."""
    missing = _missing_gpu() if any(item.get_closest_marker("gpu") for item in items) else ""
    for item in items:
        if missing and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=missing))
        if "mpirun" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.launches)


def _missing_gpu() -> str:
    import torch

    from mpisign import devices

    found = devices.problem("cuda")
    return f"no GPU: {found}" if found else "" if torch.cuda.is_available() else "torch can't use the GPU"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Under mpirun rank 0 alone reports."""
    if _under_mpirun(config):
        from mpi4py import MPI

        from mpisign.environment import check_world, launched
        from mpisign.errors import EnvironmentProblem

        try:
            check_world(MPI.COMM_WORLD.size, launched())  # one rank alone would pass them all
        except EnvironmentProblem as problem:
            raise pytest.UsageError(str(problem)) from None
        if MPI.COMM_WORLD.rank:
            reporter = config.pluginmanager.getplugin("terminalreporter")
            config.pluginmanager.unregister(reporter)


def _under_mpirun(config: pytest.Config) -> bool:
    return bool(config.getoption("--with-mpi", default=False))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Under mpirun: a failure on one rank ends the job, named, instead of leaving the others in a collective."""
    if not (_under_mpirun(item.config) and item.get_closest_marker("mpi")):
        return (yield)
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    capture = item.config.pluginmanager.getplugin("capturemanager")

    def give_up(reason: str, dump: Callable[[], None]) -> None:
        with capture.global_and_fixture_disabled():
            dump()
            print(f"\nrank {world.rank} of {world.size}: {item.nodeid}: {reason}", file=sys.stderr, flush=True)
            time.sleep(0.5)  # a launcher drops what it has not read when the job is aborted
            world.Abort(3)

    def out_of_time() -> None:
        give_up(f"no end after {MPI_DEADLINE:g} s", faulthandler.dump_traceback)

    watchdog = threading.Timer(MPI_DEADLINE, out_of_time)
    watchdog.daemon = True
    watchdog.start()
    try:
        return (yield)
    except BaseException as error:
        if not isinstance(error, pytest.skip.Exception):
            give_up(f"{type(error).__name__}: {error}", traceback.print_exc)
        raise
    finally:
        watchdog.cancel()


@pytest.fixture(autouse=True)
def signals_are_restored() -> Iterator[None]:
    """Tests of the guard install handlers; the next test must not meet them."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
