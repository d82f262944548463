"""Writers that are killed at any moment leave a good checkpoint, or say why not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from saved_states import same
from torch import Tensor, full

from mpisign import seeding
from mpisign.checkpoints import Folder, load, steps

KILLS, SEED, SIZE = 20, 0, 2
MOST, LONGEST = 3, 0.03
"""Checkpoints that a writer may finish, and seconds that it may go on after that: a save takes a few milliseconds."""

WRITER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_killed_writers import write_for_ever
for line in sys.stdin:
    child = os.fork()  # a new process for each life, without importing all again
    if child == 0:
        print("started", os.getpid(), flush=True)
        write_for_ever(sys.argv[1], line.strip())
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


def state(step: int, rank: int) -> dict[str, Tensor | int]:
    return {"step": step, "x": full((20_000,), float(step)), "rank": full((3,), rank)}


def write_for_ever(path: str, run: str) -> None:
    """Go on from the newest good checkpoint, and say which ones are on disk."""
    folders = [Folder(Path(path), rank, SIZE, 2, run) for rank in range(SIZE)]
    good = [found for found in steps(Path(path), full=True) if found.problem is None]
    step = load(good[0], 0)[0]["step"] if good else 0
    while True:
        step += 1
        for folder in folders:
            folder.save(step, state(step, folder.rank))
        for folder in folders:
            folder.wait()
        os.write(1, f"{step}\n".encode())


def test_after_each_of_twenty_kills_the_last_finished_checkpoint_is_there_and_others_say_why_not(
    tmp_path: Path,
) -> None:
    random = seeding.generator(SEED, seeding.SHARED, "kills")
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parent)]
    paths = os.pathsep.join(
        [str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    finished, half = 0, 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for life in range(KILLS):
            process.stdin.write(f"life {life}\n")
            pid = int(process.stdout.readline().removeprefix("started "))
            for _ in range(random.integers(MOST + 1)):
                finished = int(process.stdout.readline())
            time.sleep(random.uniform(0, LONGEST))
            os.kill(pid, signal.SIGKILL)
            for line in iter(process.stdout.readline, "ended\n"):
                finished = int(line)
            half += len(list(tmp_path.rglob("*.part")))
            found = steps(tmp_path, full=True)
            good = [one for one in found if one.problem is None]
            assert all(one.problem for one in found if one not in good)
            assert finished == 0 or good[0].step >= finished
            for one in good:
                for rank in range(SIZE):
                    assert same(load(one, rank)[0], state(one.step, rank))
        process.stdin.close()
    assert finished >= KILLS  # they did write
    assert half  # and some were killed while they did
