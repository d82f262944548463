"""Each batch file as it stands, on a real Slurm with both MPIs: results, launchers, and pairs that don't fit."""

import json
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster
from jobs import OPTIONS, PATIENCE, RANKS, ROOT, Submit, environment_of, refuse, without_slurm

TWO_A_NODE = "--ntasks-per-node=2"


def check(summary: dict[str, object], *options: str) -> None:
    assert summary["ranks"] == RANKS
    assert summary["checksum"] == without_slurm(*(options or OPTIONS))
    assert summary["test_accuracy"] > 0.85  # 0.903 for these options


def test_mpirun_in_the_allocation(submit: Submit, venv: Path) -> None:
    job = submit(venv, TWO_A_NODE, "slurm/cpu.sbatch", *OPTIONS)
    job.succeeds()
    check(job.summary(f"runs/mpisign-{job.number}"))
    assert "on node[1-2]: mpirun -n 4 python -m mpisign.train" in job.printed()


def test_srun_speaks_the_language_of_the_mpi(submit: Submit, venv: Path) -> None:
    job = submit(venv, TWO_A_NODE, "slurm/srun.sbatch", MPISIGN_ARGS=" ".join(OPTIONS), MPISIGN_OUTPUT="here")
    job.succeeds()
    check(job.summary("here"))
    assert f"srun --mpi={'pmix' if 'Open MPI on' in job.printed() else 'pmi2'} " in job.printed()


def test_sixteen_ranks_with_nothing_overridden(submit: Submit, mpich: Path) -> None:
    job = submit(mpich, "slurm/cpu.sbatch")
    job.succeeds()
    summary = job.summary(f"runs/mpisign-{job.number}")
    assert summary["ranks"] == 16
    assert summary["test_accuracy"] >= 0.95


def test_an_array_runs_each_setting_in_a_folder_of_its_own(submit: Submit, mpich: Path, tmp_path: Path) -> None:
    settings = ["--algorithm sgd", "--algorithm relaysgd --topology chain"]
    (tmp_path / "settings").write_text("\n".join(settings))
    job = submit(
        mpich, "--array=0-2%2", TWO_A_NODE, "slurm/array.sbatch", *OPTIONS, MPISIGN_SETTINGS=f"{tmp_path}/settings"
    )
    assert sorted(job.wait()) == ["COMPLETED", "COMPLETED", "FAILED"]  # there is no third setting
    for index, setting in enumerate(settings):
        summary = job.summary(f"runs/mpisign-array-{job.number}/{index}")
        assert summary["algorithm"] == setting.split()[1]
        assert summary["checksum"] == without_slurm(*OPTIONS, *setting.split(), ranks=2)
    assert "no setting 2: there are 2" in (tmp_path / f"mpisign-array-{job.number}_2.out").read_text()


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "slurm").glob("*.sbatch")))
def test_slurm_takes_every_batch_file_as_it_stands(cluster: Cluster, script: str) -> None:
    answer = cluster.run("sbatch", "--test-only", ROOT / "slurm" / script)
    assert answer.returncode == 0, answer.stderr
    assert "to start at" in answer.stderr


def test_slurm_refuses_more_gpus_than_there_are(cluster: Cluster) -> None:
    assert cluster.run("sbatch", "--test-only", "--gpus-per-node=5", ROOT / "slurm" / "gpu.sbatch").returncode


def test_a_gpu_job_has_a_rank_for_each_gpu(submit: Submit, mpich: Path) -> None:
    job = submit(
        mpich,
        "--gpus-per-node=2",
        TWO_A_NODE,
        "slurm/gpu.sbatch",
        *OPTIONS,
        MPISIGN_DEVICE="cpu",
        MPISIGN_OUTPUT="here",
    )
    job.succeeds()
    check(job.summary("here"))
    assert "gpu.sbatch: GPUs 0,1 of node[1-2]" in job.printed()


def test_the_test_job_runs_the_doctor_and_tests_over_mpi(submit: Submit, venv: Path) -> None:
    job = submit(venv, "slurm/tests.sbatch", "-k", "every_verb")
    job.succeeds()
    assert "4 on 2 hosts: node1 (2 ranks), node2 (2 ranks)" in job.printed()
    assert f"job {job.number}, nodes: 2; srun --mpi=pmi" in job.printed()
    assert "2 passed" in job.printed()


@pytest.mark.parametrize("mpi, launcher", [("mpich", "none"), ("openmpi", "none"), ("openmpi", "pmi2")])
def test_ranks_that_would_each_train_alone_are_refused_once(submit: Submit, mpi: str, launcher: str) -> None:
    job = submit(environment_of(mpi), TWO_A_NODE, "slurm/cpu.sbatch", MPISIGN_LAUNCH=f"srun --mpi={launcher}")
    assert job.wait() == ["FAILED"]
    assert job.printed().count("MPI sees 1 rank, but srun started more (SLURM_STEP_NUM_TASKS=4)") == 1
    assert not (job.folder / "runs").exists()


def test_an_mpi_that_does_not_know_sruns_language_ends_the_job(submit: Submit, mpich: Path) -> None:
    job = submit(mpich, TWO_A_NODE, "slurm/srun.sbatch", MPISIGN_LAUNCH="srun --mpi=pmix --kill-on-bad-exit=1")
    assert job.wait() == ["FAILED"]
    assert job.printed().count("this Python's MPI is MPICH, but srun started it. Let srun speak") == 1


def test_a_run_without_its_summary_is_not_done(submit: Submit, mpich: Path) -> None:
    job = submit(mpich, "slurm/cpu.sbatch", MPISIGN_LAUNCH="true", MPISIGN_OUTPUT="here")
    assert job.wait() == ["FAILED"]
    assert "the run is not done: there is no here/summary.json" in job.printed()


def test_a_job_from_python_by_submitit(cluster: Cluster, venv: Path, tmp_path: Path) -> None:
    example = ROOT / "slurm" / "submitit_example.py"
    python = venv / "bin" / "python"
    if subprocess.run([python, "-c", "import submitit"], capture_output=True, check=False).returncode:
        refuse(f"no submitit in {venv}")
    nodes = ("--nodes", "2", "--ranks-per-node", "2", "--output", tmp_path / "run")
    run = cluster.run(python, example, *nodes, "--", *OPTIONS, seconds=PATIENCE)
    assert run.returncode == 0, run.stderr
    check(json.loads((tmp_path / "run" / "summary.json").read_text()))
    assert "test accuracy 0.9028" in run.stdout
