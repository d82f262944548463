"""slurm/resume.sbatch on a real Slurm: warned, preempted and requeued in the middle of a run, and the same bits in the end."""

from pathlib import Path

from cluster import Cluster
from jobs import RANKS, Job, Submit, environment_of, without_slurm

LONG = ("--task", "digits", "--epochs", "30", "--batch-size", "16")
STEPS = 690
DEFAULTS = {"MPISIGN_OUTPUT": "here", "MPISIGN_CHECKPOINT_EVERY": "40"}


def start(submit: Submit, venv: Path) -> Job:
    """Submit a long run, and wait until its first checkpoint is there."""
    job = submit(venv, "--ntasks-per-node=2", "slurm/resume.sbatch", *LONG, **DEFAULTS)
    job.until(lambda: len(list((job.folder / "here" / "checkpoints").glob("step-*/*.safetensors"))) >= RANKS)
    return job


def goes_on(job: Job) -> None:
    """See the job begin anew, without the two minutes that Slurm lets a requeued job wait, and end as if nothing had been."""

    job.until(lambda: job.states() == ["PENDING"])
    # not in the same second: the nodes would take it for the one that they have just ended
    job.cluster.run("scontrol", "update", f"jobid={job.number}", "StartTime=now+3")
    job.succeeds()
    summary = job.summary("here")
    assert summary["checksum"] == without_slurm(*LONG)
    assert (summary["ranks"], summary["steps"]) == (RANKS, STEPS)
    second = job.printed().partition("resume.sbatch: start 1:")[2]
    assert "epoch  1/30" not in second
    assert "epoch 30/30" in second


def test_a_job_that_is_warned_of_its_time_limit_goes_on_in_the_next(submit: Submit, venv: Path) -> None:
    job = start(submit, venv)
    job.cluster.run("scancel", "--batch", "--signal=USR1", job.number)  # what --signal=B:USR1@120 sends
    goes_on(job)
    first = job.printed().partition("resume.sbatch: start 1:")[0]
    assert "resume.sbatch: SIGUSR1 at" in first
    assert "all ranks have written a checkpoint" in first
    assert "resume.sbatch: queued again" in first


def test_a_job_goes_on_after_one_of_a_better_partition_has_taken_its_nodes(
    cluster: Cluster, submit: Submit, mpich: Path
) -> None:
    job = start(submit, mpich)
    urgent = cluster.run(
        "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"
    )
    assert urgent.returncode == 0, urgent.stderr
    goes_on(job)
    assert "resume.sbatch: SIGUSR1 at" in job.printed()


def test_a_job_that_is_requeued_without_a_warning_goes_on_from_its_last_checkpoint(submit: Submit) -> None:
    job = start(submit, environment_of("openmpi"))
    job.cluster.run("scontrol", "requeue", job.number)
    goes_on(job)
    assert "resume.sbatch: queued again" not in job.printed()


def test_a_job_that_its_user_cancels_is_not_queued_again(submit: Submit, mpich: Path) -> None:
    job = start(submit, mpich)
    job.cluster.run("scancel", job.number)
    assert job.wait() == ["CANCELLED"]
    job.until(lambda: not job.cluster.run("squeue", "--noheader", f"--jobs={job.number}").stdout)
    assert "Restarts=0" in job.show()


def test_a_mistake_is_not_tried_again(submit: Submit, mpich: Path) -> None:
    job = submit(mpich, "--ntasks-per-node=2", "slurm/resume.sbatch", "--task", "nothing", **DEFAULTS)
    assert job.wait() == ["FAILED"]
    assert "Restarts=0" in job.show()
    assert "--task nothing" in job.printed()


def test_a_finished_run_is_left_alone(submit: Submit, mpich: Path) -> None:
    for _ in range(2):
        job = submit(mpich, "--ntasks-per-node=2", "slurm/resume.sbatch", "--steps", "20", **DEFAULTS)
        job.succeeds()
    assert "is done, nothing is left to do" in job.printed()
