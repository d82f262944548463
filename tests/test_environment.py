import os
import subprocess
import sys
from pathlib import Path

import pytest

import mpisign
from mpisign.environment import (
    THREAD_VARIABLES,
    Launch,
    check_vendor,
    check_world,
    host_cores,
    launched,
    limit_threads,
    problems,
    share_of_cores,
)
from mpisign.errors import EnvironmentProblem

NONE = Launch("none", 0, 1, None, None)
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_RANK": "5",
}
STEP = {  # as srun -N2 -n3 sets them for the third task
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}
DAEMON = {**STEP, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
BATCH = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "4"}


@pytest.fixture
def cores(monkeypatch):
    """Let the host have `host` cores, of which this process may use `usable`."""

    def pretend(host, usable=None):
        mask = {0: range(usable or host), 1: range(host)}
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(mask[process]), raising=False)

    return pretend


def four_here(launcher="mpich"):
    return Launch(launcher, 0, 4, 0, 4)


# Who started this process


def test_without_a_launcher_there_is_rank_0_of_1():
    assert launched({}) == NONE


def test_hydra_is_read():
    assert launched(MPICH) == Launch("mpich", 5, 8, 1, 4)


def test_open_mpi_is_read():
    assert launched(OPEN_MPI) == Launch("openmpi", 5, 8, 1, 4)


def test_a_step_of_srun_is_read():
    assert launched(STEP) == Launch("slurm", 2, 3, 0, 1)


@pytest.mark.parametrize("protocol", [{"PMI_RANK": "2", "PMI_SIZE": "3", "PMI_FD": "13"}, {"PMIX_RANK": "2"}])
def test_srun_stays_srun_whatever_protocol_it_speaks(protocol):
    assert launched({**STEP, **protocol}).launcher == "slurm"


@pytest.mark.parametrize("ranks", [MPICH, OPEN_MPI])
def test_mpiruns_variables_win_over_those_of_its_daemon(ranks):
    assert launched({**DAEMON, **ranks}).rank == 5
    assert launched({**DAEMON, **ranks}).size == 8


def test_a_batch_script_is_no_step():
    assert launched(BATCH) == NONE
    assert launched({**BATCH, "SLURM_STEP_ID": str(0xFFFFFFFB), "SLURM_STEP_NUM_TASKS": "1"}) == NONE
    assert launched({**BATCH, "SLURM_STEP_ID": "batch", "SLURM_STEP_NUM_TASKS": "1"}) == NONE


def test_the_tasks_of_each_node_are_counted():
    def tasks(node, listed):
        return launched({**STEP, "SLURM_NODEID": str(node), "SLURM_STEP_TASKS_PER_NODE": listed}).local_size

    assert [tasks(node, "3(x2),1") for node in range(4)] == [3, 3, 1, None]
    assert tasks(0, "") is None


def test_an_unknown_pmix_launcher_tells_the_least_size_there_can_be():
    assert launched({"PMIX_RANK": "3"}) == Launch("pmix", 3, 4, None, None)


def test_variables_that_are_no_numbers_are_passed_over():
    assert launched({"PMI_RANK": "x", "PMI_SIZE": "", "MPI_LOCALNRANKS": "-1"}) == Launch("mpich", 0, 1, None, None)


def test_a_size_alone_is_rank_0_of_it():
    assert launched({"PMI_SIZE": "4"}) == Launch("mpich", 0, 4, None, None)


# n singletons


def test_a_world_of_the_launchers_size_passes():
    check_world(8, launched(MPICH))
    check_world(1, NONE)


def test_a_world_that_the_launcher_knows_nothing_of_passes():
    check_world(4, NONE)


@pytest.mark.parametrize(
    "environ, launcher, variable, remedy",
    [
        (MPICH, "mpirun of MPICH", "PMI_SIZE=8", "Use the mpirun of this Python's MPI"),
        (OPEN_MPI, "mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE=8", "Use the mpirun of this Python's MPI"),
        (STEP, "srun", "SLURM_STEP_NUM_TASKS=3", "srun --mpi=pmi2 for MPICH"),
        ({"PMIX_RANK": "3"}, "a PMIx launcher", "PMIX_RANK=3", "Use the mpirun of this Python's MPI"),
    ],
)
def test_singletons_are_refused_with_launcher_variable_and_remedy(environ, launcher, variable, remedy):
    with pytest.raises(EnvironmentProblem) as caught:
        check_world(1, launched(environ))
    message = str(caught.value)
    assert message.startswith(f"MPI sees 1 rank, but {launcher} started more ({variable}): each would train alone.")
    assert remedy in message


def test_mpich_under_a_pmix_launcher_is_refused_before_it_ends_the_process():
    with pytest.raises(EnvironmentProblem, match="this Python's MPI is MPICH, but mpirun of Open MPI started it"):
        check_vendor("MPICH", launched(OPEN_MPI), OPEN_MPI)
    with pytest.raises(EnvironmentProblem, match=r"is MPICH, but srun started it.*srun --mpi=pmi2 for MPICH"):
        check_vendor("MPICH", launched(STEP), {**STEP, "PMIX_RANK": "2"})


def test_open_mpi_under_hydra_is_refused():
    with pytest.raises(EnvironmentProblem, match="this Python's MPI is Open MPI, but mpirun of MPICH started it"):
        check_vendor("Open MPI", launched(MPICH), MPICH)


def test_mpi_under_its_own_launcher_passes():
    check_vendor("MPICH", launched(MPICH), MPICH)
    check_vendor("Open MPI", launched(OPEN_MPI), OPEN_MPI)
    check_vendor("Open MPI", launched(STEP), {**STEP, "PMIX_RANK": "2"})
    check_vendor("MPICH", launched(STEP), {**STEP, "PMI_RANK": "2", "PMI_SIZE": "3"})
    check_vendor("MPICH", NONE, {})


def test_an_mpich_that_is_told_to_speak_pmix_passes():
    check_vendor("MPICH", launched(STEP), {**STEP, "PMIX_RANK": "2", "MPIR_CVAR_PMI_VERSION": "x"})


# Threads


def test_one_rank_takes_all_cores(cores):
    cores(8)
    assert limit_threads(NONE, {}) == 8


def test_ranks_share_the_cores_of_their_host(cores):
    cores(16)
    environ = {}
    assert limit_threads(four_here(), environ) == 4
    assert environ == dict.fromkeys(THREAD_VARIABLES, "4")


def test_a_rank_has_at_least_one_thread(cores):
    cores(2)
    assert limit_threads(Launch("mpich", 0, 16, 0, 16), {}) == 1


def test_where_the_local_size_is_unknown_all_ranks_count(cores):
    cores(8)
    assert limit_threads(Launch("mpich", 0, 4, None, None), {}) == 2


@pytest.mark.parametrize("usable, share", [(1, 1), (2, 2), (4, 4), (8, 4), (16, 4)])
def test_a_bound_rank_divides_no_further_unless_others_share_its_cores(cores, usable, share):
    cores(16, usable)
    assert share_of_cores(four_here(), {}) == share


def test_slurms_allocation_is_all_there_is(cores):
    cores(64)
    assert host_cores({"SLURM_CPUS_ON_NODE": "8"}) == 8
    assert share_of_cores(four_here(), {"SLURM_CPUS_ON_NODE": "8"}) == 2


def test_without_affinity_the_number_of_cores_counts(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert share_of_cores(four_here(), {}) == 2


def test_what_the_user_chose_stays(cores):
    cores(16)
    environ = {"NUMBA_NUM_THREADS": "1"}
    assert limit_threads(four_here(), environ) == 4
    assert environ["NUMBA_NUM_THREADS"] == "1"
    assert environ["MKL_NUM_THREADS"] == "4"


def test_the_users_openmp_threads_count_for_all(cores):
    cores(16)
    environ = {"OMP_NUM_THREADS": "3,1"}
    assert limit_threads(four_here(), environ) == 3
    assert environ["OMP_NUM_THREADS"] == "3,1"
    assert environ["NUMBA_NUM_THREADS"] == "3"


def test_openmp_threads_that_are_no_number_are_passed_over(cores):
    cores(16)
    assert limit_threads(four_here(), {"OMP_NUM_THREADS": "many"}) == 4


def test_too_many_threads_are_a_sentence(cores):
    cores(16)
    (sentence,) = problems(four_here(), {"OMP_NUM_THREADS": "8"})
    assert sentence.startswith("OMP_NUM_THREADS=8 with 4 ranks on this host: ")
    assert "may use 16 of 16 cores, its share is 4" in sentence
    assert sentence.endswith("Unset it, or set 4")


def test_threads_on_the_one_core_of_a_bound_rank_are_too_many(cores):
    cores(16, 1)
    assert "may use 1 of 16 cores, its share is 1" in problems(four_here(), {"MKL_NUM_THREADS": "4"})[0]


def test_what_limit_threads_sets_is_never_a_problem(cores):
    for host in (1, 2, 16):
        cores(host)
        environ = {}
        limit_threads(four_here(), environ)
        assert problems(four_here(), environ) == []


def test_the_environment_is_read_before_anything_heavy_is_imported():
    heavy = "{'torch', 'numpy', 'numba', 'mpi4py'}"
    program = f"import sys, mpisign.environment; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(mpisign.__file__).parents[1])
