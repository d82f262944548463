"""The fixture of MPI tests itself: a rank that fails alone, or hangs, ends the run in seconds, with its message."""

import shutil
import time
from pathlib import Path

import pytest

CASES = {
    "assert comm.rank != 1": "rank 1 of 3: test_inner.py::test_inner: AssertionError",
    "time.sleep(100 if comm.rank == 2 else 0)": " of 3: test_inner.py::test_inner: no end after 3 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_a_rank_that_fails_alone_ends_the_run(line: str, mpirun, tmp_path: Path) -> None:
    tests = Path(__file__).parent
    shutil.copy(tests / "conftest.py", tmp_path)
    (tmp_path / "test_inner.py").write_text(
        f"import time\nimport pytest\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n\n\n"
        f"@pytest.mark.mpi\ndef test_inner():\n    {line}\n    comm.Barrier() if comm.rank != 2 else None\n"
    )
    started = time.monotonic()
    done = mpirun(
        3, "-m", "pytest", "--with-mpi", f"--rootdir={tmp_path}", tmp_path,
        MPISIGN_TEST_DEADLINE="3", PYTHONPATH=str(tests),
    )  # fmt: skip
    assert time.monotonic() - started < 25
    assert done.returncode != 0
    assert CASES[line] in done.stderr
