"""The magic that runs a notebook's cell under MPI."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mpisign.errors import ConfigError, RanksFailed
from mpisign.notebook import launch, luggage, magic, parcel, rank

starts_ranks = [
    pytest.mark.slow,
    pytest.mark.launches,
    pytest.mark.skipif(launch.find_mpiexec() is None, reason="no mpiexec beside this Python or in PATH"),
]
ROOT = Path(__file__).parents[1]


@pytest.fixture
def cell(monkeypatch):
    """Run a cell: `cell(line, body, **variables)` returns the notebook's variables."""
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), inherited]))

    def run(line, body, **variables):
        magic.mpirun(line, textwrap.dedent(body).lstrip("\n"), variables)
        return variables

    return run


@pytest.fixture
def shell(monkeypatch):
    """A notebook without a screen: `shell.run_cell` keeps sources as a notebook does."""
    interactiveshell = pytest.importorskip("IPython.core.interactiveshell", reason="pip install 'mpisign[tutorials]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    main = sys.modules["__main__"]
    shell = interactiveshell.InteractiveShell()  # not the singleton: it would leave hooks behind
    yield shell
    sys.modules["__main__"] = main


def outcome(rank, summary="", time=0.0, output="", place=""):
    failure = None
    if summary:
        failure = SimpleNamespace(time=time, summary=summary, traceback=f"traceback of {summary}")
    return launch.Outcome(rank, output, failure, place, None)


# what needs no MPI


def test_options_have_defaults():
    options = magic._parsed("")
    assert (options.n, options.seconds, options.names, options.out) == (4, 60, "", "")


@pytest.mark.parametrize("line", ["-n 0", "-n two", "-t 0", "-t nan", "--frobnicate", "--out a-b"])
def test_options_that_make_no_sense_are_refused(line):
    with pytest.raises(ConfigError, match="%%mpirun"):
        magic._parsed(line)


def test_without_an_mpiexec_the_cell_says_what_to_install_and_the_notebook_goes_on(cell, capsys, monkeypatch):
    monkeypatch.setattr(magic, "find_mpiexec", lambda: None)
    variables = cell("-n 4 --out total", "total = 1 / 0")
    assert variables == {"total": None}
    assert "pip install 'mpisign[mpich]'" in capsys.readouterr().out


def test_a_name_that_is_not_there_is_refused_before_anything_starts(cell):
    with pytest.raises(NameError, match="no variable called fingers in this notebook"):
        cell("--with fingers", "pass")


def test_what_is_no_plain_value_is_refused_by_name_and_place(cell):
    with pytest.raises(
        TypeError, match=r"^lock can't be sent to other ranks: lock is a _thread.lock; wanted tensors, "
    ):
        cell("--with lock", "pass", lock=threading.Lock())
    with pytest.raises(
        TypeError, match=r"^runs can't be sent to other ranks: runs\['a'\]\[1\] is a builtins.set; wanted"
    ):
        cell("--with runs", "pass", runs={"a": [1, {2}]})


def test_an_object_that_could_run_code_when_it_is_read_is_not_sent(cell, tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    with pytest.raises(TypeError, match="trap can't be sent to other ranks"):
        cell("--with trap", "pass", trap=Trap())
    assert not (tmp_path / "sprung").exists()


def test_plain_values_arrive_bit_for_bit(tmp_path):
    sent = {"rows": [torch.tensor([float("nan"), -0.0]), np.arange(3, dtype=">i2")], "big": 2**70, "pair": (1, None)}
    parcel.seal(tmp_path / "parcel", sent)
    come = parcel.unseal(tmp_path / "parcel")
    assert come["rows"][0].view(torch.int32).equal(sent["rows"][0].view(torch.int32))
    assert (come["rows"][1].dtype, come["rows"][1].tolist()) == (np.dtype(">i2"), [0, 1, 2])
    assert (come["big"], come["pair"]) == (2**70, (1, None))


def test_what_a_module_holds_travels_by_its_name(shell):
    shell.run_cell("import math\nfrom collections import OrderedDict\nfrom os.path import join\nroot = math.sqrt")
    items = luggage.pack(["OrderedDict", "join", "root"], shell.user_ns)
    assert {item.content for item in items} == {"collections:OrderedDict", "posixpath:join", "math:sqrt"}
    there = {}
    luggage.unpack(items, there)
    assert all(there[name] is shell.user_ns[name] for name in ("OrderedDict", "join", "root"))


def test_the_mpiexec_beside_this_python_is_preferred(tmp_path, monkeypatch):
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mpiexec").write_text("#!/bin/sh\n")
        (tmp_path / folder / "mpiexec").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert launch.find_mpiexec() == str(tmp_path / "own" / "mpiexec")
    (tmp_path / "own" / "mpiexec").unlink()
    assert launch.find_mpiexec() == str(tmp_path / "other" / "mpiexec")


def test_ranks_do_not_inherit_what_a_launcher_told_this_process_but_all_that_the_user_set():
    environ = {"PMI_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "HOME": "/", "OMPI_ALLOW_RUN_AS_ROOT": "0"}
    given = launch.environment_of_ranks(environ)
    assert not {"PMI_RANK", "OMPI_COMM_WORLD_SIZE"} & set(given)
    assert (given["HOME"], given["OMPI_ALLOW_RUN_AS_ROOT"]) == ("/", "0")


def test_the_first_failure_is_told_in_full_and_its_consequences_in_a_line():
    failed = [outcome(0, "Lost", 2.0), outcome(1, "ValueError: root", 1.0), outcome(2, "Lost", 2.0)]
    text = magic._causes(failed, 4)
    assert text.startswith("rank 1 of 4 failed:\ntraceback of ValueError: root")
    assert "after that, rank 0: Lost" in text
    assert "traceback of Lost" not in text


def test_of_ranks_that_fail_alike_the_lowest_speaks_for_all():
    text = magic._causes([outcome(1, "same", 3.0), outcome(2, "same", 1.0)], 4)
    assert text.startswith("rank 1 of 4 failed")
    assert text.endswith("the same happened on rank 2")


def test_a_place_is_the_innermost_line_of_the_notebook(tmp_path):
    stack = tmp_path / "stack"
    stack.write_text(
        'Thread 0x1 (most recent call first):\n  File "/lib/mpi.py", line 9 in wait\n'
        '  File "<notebook vote>", line 2 in vote\n  File "<notebook cell>", line 1 in <module>\n'
    )
    assert launch._place(stack, "vote()") == "line 2 of vote"
    stack.write_text('  File "<frozen runpy>", line 3\n  File "<notebook cell>", line 2 in <module>\n')
    assert launch._place(stack, "a\n  b()") == "line 2 of this cell: b()"
    stack.write_text("")
    assert launch._place(stack, "a") == "was still starting"


def test_functions_travel_as_source_with_what_they_use_and_classes_too(shell):
    shell.run_cell("import math\nfactor = 3\nunused = 4")
    shell.run_cell("class Base:\n    def double(self, x):\n        return factor * x\n")
    shell.run_cell("from functools import cache\n@cache\ndef wrapped(x):\n    return x")
    shell.run_cell("def area(r):\n    return [math.pi * Base().double(r) for _ in range(1)][0]")
    items = luggage.pack(["area"], shell.user_ns)
    assert [(item.name, item.kind) for item in items] == [
        ("math", "module"), ("factor", "value"), ("Base", "source"), ("area", "source"),
    ]  # fmt: skip
    there = {}
    luggage.unpack(items, there)
    assert there["area"](2) == shell.user_ns["area"](2)


def test_a_variable_that_has_only_the_name_of_an_attribute_stays_behind(shell):
    shell.run_cell("import math\nsqrt, here = {1}, 2")
    shell.run_cell("def root(x):\n    return [math.sqrt(x) + here for _ in range(1)][0]")
    assert [item.name for item in luggage.pack(["root"], shell.user_ns)] == ["math", "here", "root"]


def test_a_class_brings_those_that_it_derives_from(shell):
    shell.run_cell("from collections import Counter as Count\nclass Base(Count):\n    def two(self):\n        return 2")
    shell.run_cell("class Mine(Base):\n    def three(self):\n        return self.two() + 1")
    items = luggage.pack(["Mine"], shell.user_ns)
    assert [(item.name, item.kind) for item in items] == [
        ("Count", "attribute"),
        ("Base", "source"),
        ("Mine", "source"),
    ]
    there = {}
    luggage.unpack(items, there)
    assert there["Mine"]().three() == 3


def test_a_mistake_in_the_options_is_told_in_one_line(shell, capsys):
    shell.run_cell("%load_ext mpisign.notebook")
    assert not shell.run_cell("%%mpirun -n none\npass").success
    assert capsys.readouterr().err.startswith("UsageError: %%mpirun: argument -n: invalid int value: 'none'")


def test_a_function_without_a_name_is_refused(shell):
    shell.run_cell("double = lambda x: 2 * x")
    with pytest.raises(TypeError, match="its def or class was not found"):
        luggage.pack(["double"], shell.user_ns)


def test_a_traceback_begins_in_the_notebook_and_names_no_folder_of_this_machine(monkeypatch):
    source = "import torch\ntorch.zeros(2).view(3)"
    with pytest.raises(RuntimeError) as caught:
        luggage.execute(source, "cell", {})
    failure = rank._failure(caught.value)
    assert failure.traceback.splitlines()[1].strip() == 'File "<notebook cell>", line 2, in <module>'
    assert "torch.zeros(2).view(3)" in failure.traceback
    assert not any(f'"{place}' in failure.traceback for place in sys.path if place)
    assert failure.summary.startswith("RuntimeError: shape")


def test_a_name_that_a_rank_does_not_know_is_told_with_how_to_send_it():
    with pytest.raises(NameError) as caught:
        luggage.execute("count_fingers", "cell", {})
    failure = rank._failure(caught.value)
    assert failure.traceback.endswith("If count_fingers is in it: %%mpirun … --with count_fingers")
    assert failure.summary == "NameError: name 'count_fingers' is not defined"


# what starts ranks


def launches(test):
    for mark in reversed(starts_ranks):
        test = mark(test)
    return test


@launches
def test_a_cell_runs_as_ranks_of_one_world_and_prints_rank_by_rank(cell, capsys):
    cell(
        "-n 3",
        """
        import sys, torch, mpisign
        comm = mpisign.MPIComm()
        print("I am", comm.rank, "of", comm.size)
        print(comm.allreduce(torch.tensor([comm.rank])).item(), file=sys.stderr)
        """,
    )
    assert capsys.readouterr().out.splitlines() == [
        line for rank in range(3) for line in (f"rank {rank} | I am {rank} of 3", f"rank {rank} | 3")
    ]


@launches
def test_the_same_function_gives_the_same_in_the_simulator_and_under_mpi(shell):
    shell.run_cell(
        "%load_ext mpisign.notebook\nimport torch\nfrom mpisign import MPIComm, simulate\nfingers = [2, 3, 1, 4]"
    )
    shell.run_cell("def count(comm):\n    return comm.allreduce(torch.tensor([fingers[comm.rank]])).item()")
    done = shell.run_cell("%%mpirun -n 4 --with count,MPIComm --out there\nthere = count(MPIComm())")
    assert done.success
    shell.run_cell("here = simulate(4, count)")
    assert shell.user_ns["there"] == shell.user_ns["here"] == [10] * 4


@launches
def test_a_failing_rank_ends_the_cell_with_its_traceback_while_others_wait_for_it(cell, capsys):
    started = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        cell(
            "-n 3",
            """
            import torch, mpisign
            comm = mpisign.MPIComm()
            print("here I am", flush=True)
            if comm.rank == 1:
                1 / 0
            comm.barrier()
            """,
        )
    text = str(caught.value)
    assert text.startswith("rank 1 of 3 failed:\nTraceback")
    assert 'File "<notebook cell>", line 5, in <module>\n    1 / 0' in text
    assert text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "rank 1 | here I am" in capsys.readouterr().out
    assert time.monotonic() - started < 30


@launches
def test_ranks_that_wait_for_each_other_are_stopped_and_named(cell):
    started = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        cell(
            "-n 2 -t 5",
            """
            from mpi4py import MPI
            if MPI.COMM_WORLD.rank == 0:
                MPI.COMM_WORLD.recv(source=1)
            """,
        )
    assert "the ranks did not end in 5 s" in str(caught.value)
    assert "rank 0 | line 3 of this cell: MPI.COMM_WORLD.recv(source=1)" in str(caught.value)
    assert time.monotonic() - started < 40


@launches
def test_a_rank_that_dies_without_a_word_is_an_error(cell):
    with pytest.raises(RanksFailed, match="a rank ended without a word"):
        cell("-n 2", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")


@launches
def test_a_variable_that_can_not_come_back_is_an_error_of_its_rank(cell):
    with pytest.raises(
        RanksFailed, match=r"TypeError: found can't be sent to the notebook: found is a builtins.set; wanted"
    ):
        cell("-n 1 --out found", "found = {1}")


@launches
def test_a_variable_that_the_cell_does_not_set_can_not_come_back(cell):
    with pytest.raises(RanksFailed, match="NameError: --out result: the cell sets no variable of this name"):
        cell("-n 1 --out result", "reslut = 1")


@launches
def test_a_program_may_end_early_but_not_with_a_code(cell):
    assert cell("-n 2 --out x", "import sys\nx = 3\nsys.exit()") == {"x": [3, 3]}
    with pytest.raises(RanksFailed, match="SystemExit: 3"):
        cell("-n 2", "import sys\nsys.exit(3)")


@launches
def test_ranks_that_are_n_worlds_of_one_are_an_error(cell, monkeypatch, tmp_path):
    launcher = tmp_path / "mpiexec"  # starts two processes that know nothing of each other, as another MPI's would
    launcher.write_text('#!/bin/sh\nshift 2\nfor r in 0 1; do PMI_RANK=$r PMI_SIZE=2 "$@" & done; wait\n')
    launcher.chmod(0o755)
    monkeypatch.setattr(magic, "find_mpiexec", lambda: str(launcher))
    world = "import types, sys\nsys.modules['mpi4py.MPI'] = types.SimpleNamespace(Is_initialized=lambda: True, "
    world += "Is_finalized=lambda: False, COMM_WORLD=types.SimpleNamespace(size=1, Abort=lambda code: None))"
    with pytest.raises(RanksFailed, match=r"MPI sees 1 rank, but .* started more"):
        cell("-n 2", world)


@launches
def test_an_interrupt_ends_all_ranks(tmp_path):
    program = f"""
from mpisign.notebook import magic
try:
    magic.mpirun("-n 2", '''
import os, time
from pathlib import Path
import mpisign
comm = mpisign.MPIComm()
(Path({str(tmp_path)!r}) / str(comm.rank)).write_text(str(os.getpid()))
time.sleep(50)
''', {{}})
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        files = [tmp_path / "0", tmp_path / "1"]
        _until(lambda: all(file.exists() and file.read_text() for file in files), 40)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "interrupted\n"
    pids = [int(file.read_text()) for file in files]
    _until(lambda: not any(map(_alive, pids)), 10)


def _until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
