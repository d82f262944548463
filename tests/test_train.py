"""The command line as users meet it: in one process, and under mpirun."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from launching import clean_environment, job

import mpisign
from mpisign.train import main


def test_a_simulated_run_prints_a_table_and_writes_everything(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "run"
    assert main(["--simulate", "3", "--epochs", "2", "--output", str(folder)]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^epoch [12]/2 ", out, re.M)) == 2
    assert "test accuracy" in out
    summary = json.loads((folder / "summary.json").read_text())
    assert {"test_accuracy", "test_loss", "steps", "seconds", "bytes_sent", "bytes_sent_float32", "ranks"} <= set(
        summary
    )
    assert {"algorithm", "task", "checksum"} <= set(summary)
    assert (summary["ranks"], summary["algorithm"], summary["task"]) == (3, "signum", "digits")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[-1]["test_accuracy"] == summary["test_accuracy"]
    assert tomllib.loads((folder / "config.toml").read_text())["run"]["epochs"] == 2
    from safetensors.torch import load_file

    assert sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values()) == summary["parameters"]


def test_a_run_repeats_from_its_config_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["--simulate", "2", "--steps", "3", "--seed", "7", "--lr", "0.004", "--output", str(first)]) == 0
    assert main(["--config", str(first / "config.toml"), "--output", str(second)]) == 0
    checksums = [json.loads((folder / "summary.json").read_text())["checksum"] for folder in (first, second)]
    assert checksums[0] == checksums[1]


def test_results_are_not_overwritten_unasked(tmp_path: Path, capsys) -> None:
    arguments = ["--simulate", "2", "--steps", "1", "--output", str(tmp_path)]
    assert main(arguments) == 0
    before = (tmp_path / "summary.json").read_text()
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "holds a run (config.toml, metrics.jsonl, model.safetensors, summary.json): give another folder" in told
    assert (tmp_path / "summary.json").read_text() == before
    assert main([*arguments, "--overwrite"]) == 0


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--simulate", "2", "--steps", "1", "--output", str(tmp_path / "file")]) == 2
    assert "can't be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--algorithm", "signun"], "did you mean 'signum'"),
        (["--bach-size", "3"], "did you mean '--batch-size'"),
        (["--lr", "-1"], "wanted a finite number above 0"),
        (["--simulate", "0"], "wanted a whole number of at least 1"),
        (["--simulate", "2", "--task", "mnist"], "--data"),
        (["--simulate", "2", "--model", "lenet"], "lenet"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_exit_code_2(arguments: list[str], words: str, capsys) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("mpisign.train: ")
    assert words in err
    assert "Traceback" not in err


def test_an_algorithm_of_ones_own_runs_from_a_file(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.py").write_text(
        "from mpisign import Signum\n\n\nclass Mine(Signum):\n    '''Signum of one's own.'''\n"
    )
    assert main(["--simulate", "2", "--steps", "2", "--algorithm", f"{tmp_path}/mine.py:Mine"]) == 0
    assert "mine.py:Mine, 2 ranks" in capsys.readouterr().out


def test_help_shows_flags_and_defaults(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    flags = "algorithm task model data epochs steps batch-size lr momentum weight-decay vote tie partition seed device output"
    for flag in flags.split():
        assert f"--{flag}" in out
    assert "default: signum" in out


def test_a_bar_is_shown_on_a_terminal() -> None:
    import fcntl
    import pty
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "mpisign.train", "--simulate", "2", "--epochs", "2"]
    with subprocess.Popen(command, stdout=child, stderr=subprocess.PIPE, env=clean_environment()) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                shown += os.read(parent, 4096)
            except OSError:
                break
    assert process.returncode == 0
    assert b"step" in shown
    assert b"%|" in shown
    assert b"test accuracy" in shown


# under mpirun


def test_mpi_and_the_simulator_agree_on_a_whole_run(mpirun, tmp_path: Path) -> None:
    arguments = ["--epochs", "2", "--partition", "dirichlet:0.5", "--output"]
    done = mpirun(3, "-m", "mpisign.train", *arguments, tmp_path / "real")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1
    assert main(["--simulate", "3", *arguments, str(tmp_path / "simulated")]) == 0
    real, simulated = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("real", "simulated"))
    for name in ("checksum", "test_accuracy", "test_loss", "agreement", "bytes_sent", "bytes_sent_most", "steps"):
        assert real[name] == simulated[name], name


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--algorithm", "signun"], 2, "did you mean 'signum'"),
        (["--task", "mnist"], 2, "--data"),
        (["--algorithm", "json:nothing"], 2, "json has no nothing"),
        (["--model", "vgg11"], 2, "vgg11"),
        (["--partition", "dirichlet:1e-9"], 2, "dirichlet"),
        (["--attack", "invert", "--byzantine", "9"], 2, "9"),
        (["--simulate", "2"], 2, "run it without mpirun"),
        (["--help"], 0, ""),
    ],
)
def test_messages_appear_once_not_once_a_rank(mpirun, arguments: list[str], code: int, words: str) -> None:
    done = mpirun(3, "-m", "mpisign.train", *arguments)
    assert done.returncode == code
    assert done.stderr.count("mpisign.train: ") == (code != 0)
    assert words in done.stderr
    assert done.stdout.count("usage") == (code == 0)
    assert "Traceback" not in done.stderr


def test_a_file_that_is_missing_on_another_host_than_rank_0s_is_named_by_who_misses_it(mpirun, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[run]\nsteps = 1\n")
    script = tmp_path / "elsewhere.py"
    script.write_text(
        "import sys\nfrom mpisign import environment, train\n"
        "name = 'run.toml' if environment.launched().rank == 0 else 'none.toml'\n"
        f"sys.exit(train.main(['--config', {str(tmp_path)!r} + '/' + name, '--timeout', '10']))\n"
    )
    done = mpirun(2, script, PYTHONPATH=str(Path(mpisign.__file__).parents[1]))
    assert done.returncode != 0
    assert "mpisign.train, rank 1: --config" in done.stderr
    assert "none.toml: can't read it (No such file or directory)" in done.stderr


def test_singletons_refuse_to_train(mpirun) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mpisign.train", "--steps", "1"],
        capture_output=True, text=True, timeout=60,
        env={**clean_environment(), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "MPI sees 1 rank, but srun started more (SLURM_STEP_NUM_TASKS=4)" in done.stderr


BROKEN = """
from mpisign import Signum


class Broken(Signum):
    '''Breaks on rank 1 at step 3.'''

    def update(self):
        if self.comm.rank == 1 and self.steps_taken == 3:
            {line}
        return super().update()
"""


@pytest.mark.parametrize(
    "line, words",
    [
        ("raise ZeroDivisionError('on purpose')", "ZeroDivisionError: on purpose"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "mpisign: rank 1 of 3 got SIGTERM: the job ends"),
    ],
)
def test_a_rank_that_breaks_ends_the_job_in_seconds(mpirun, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.format(line=f"print('broken', __import__('time').time()); {line}"))
    done = mpirun(3, "-m", "mpisign.train", "--algorithm", f"{tmp_path}/broken.py:Broken", PYTHONUNBUFFERED="1")
    ended = time.time()
    assert done.returncode != 0
    assert done.stderr.count(words) == 1
    assert ended - float(re.search(r"broken ([\d.]+)", done.stdout).group(1)) < 30
    assert "KeyboardInterrupt" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_mpirun_ends_the_job_in_seconds(mpirun, number: signal.Signals) -> None:
    command = [mpirun.path, "-n", "3", sys.executable, "-m", "mpisign.train", "--epochs", "100000"]
    with job(command, 60, stderr=subprocess.PIPE) as process:
        assert "epoch" in process.stdout.readline()
        process.send_signal(number)
        started = time.monotonic()
        _, err = process.communicate()
    assert time.monotonic() - started < 30
    assert process.returncode != 0
    assert "Traceback" not in err
