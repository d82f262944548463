"""Fixtures for all tests: quiet kernels, no global chance, and MPI tests that fail on all ranks or on none."""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(autouse=True)
def global_chance_is_untouched() -> Iterator[None]:
    """No test, and nothing that it calls, may draw from the global generators."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    before = torch.get_rng_state().clone()
    yield
    assert torch.equal(before, torch.get_rng_state()), "torch's global generator was used or seeded"


def _under_mpirun(config: pytest.Config) -> bool:
    return bool(config.getoption("--with-mpi", default=False))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Under mpirun: a failure on one rank ends the job, named, instead of leaving the others in a collective."""
    if not (_under_mpirun(item.config) and item.get_closest_marker("mpi")):
        return (yield)
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def give_up(reason: str) -> None:
        print(f"\nrank {world.rank} of {world.size}: {item.nodeid}: {reason}", file=sys.stderr, flush=True)
        world.Abort(3)

    def out_of_time() -> None:
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        give_up(f"no end after {MPI_DEADLINE:g} s")

    watchdog = threading.Timer(MPI_DEADLINE, out_of_time)
    watchdog.daemon = True
    watchdog.start()
    try:
        return (yield)
    except BaseException as error:
        if not isinstance(error, pytest.skip.Exception):
            import traceback

            capture = item.config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled():
                traceback.print_exc()
                give_up(f"{type(error).__name__}: {error}")
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
