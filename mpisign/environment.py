"""What the launcher says about this process, before MPI, NumPy or torch is imported: rank, size, cores, threads.

Only the standard library is imported, because thread counts act only on libraries that are not loaded yet.
"""

import faulthandler
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import EnvironmentProblem

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What `limit_threads` sets. The first one, where the user set it, speaks for the others too."""

_RANK_SIZE_LOCAL = {
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    "pmix": ("PMIX_RANK", "PMIX_RANK", "", ""),
}

_CALLED = {
    "none": "no launcher",
    "openmpi": "mpirun of Open MPI",
    "mpich": "mpirun of MPICH",
    "slurm": "srun",
    "pmix": "a PMIx launcher",
}

_SPEAKING = 2.0  # seconds that others leave to ranks that show where they stand in MPI_Init, and end

_FIRST_SPECIAL_STEP = 0xFFFFFFF0  # Slurm's batch, interactive and extern steps have numbers from here on


@dataclass(frozen=True)
class Launch:
    """Who started this process, and as which of how many.

    `launcher` is none, openmpi, mpich (every Hydra: Intel MPI and MVAPICH too), slurm (a step of srun) or pmix (any
    other launcher that speaks PMIx, which tells no size: `size` is then rank + 1, the least it can be). `local_rank`
    and `local_size` are those on this host; None where the launcher doesn't say.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int | None
    local_size: int | None

    @property
    def title(self) -> str:
        """What to call the launcher in a sentence, as in "mpirun of MPICH"."""
        return _CALLED[self.launcher]


def launched(environ: Mapping[str, str] = os.environ) -> Launch:
    """Return what the launcher's variables say. mpirun's win: under it SLURM_PROCID is that of its daemon."""
    launcher = _launcher(environ)
    if launcher == "none":
        return Launch(launcher, 0, 1, None, None)
    rank, size, local_rank, local_size = (_number(environ, name) for name in _RANK_SIZE_LOCAL[launcher])
    if launcher == "slurm":
        local_size = _tasks_of_node(environ)
    if launcher == "pmix":
        size = (rank or 0) + 1
    return Launch(launcher, rank or 0, size or 1, local_rank, local_size)


def check_world(size: int, launch: Launch) -> None:
    """Raise EnvironmentProblem where MPI's world has this `size` of 1 although the launcher started more processes.

    They would train side by side, each as rank 0 of 1, and overwrite one another's results. To be called on every
    process, right after MPI started.
    """
    if size > 1 or launch.size == 1:
        return
    name = _RANK_SIZE_LOCAL[launch.launcher][1]
    value = launch.rank if launch.launcher == "pmix" else launch.size
    raise EnvironmentProblem(
        f"MPI sees 1 rank, but {launch.title} started more ({name}={value}): each would train alone. {_remedy(launch)}"
    )


def check_vendor(vendor: str, launch: Launch, environ: Mapping[str, str] = os.environ) -> None:
    """Raise EnvironmentProblem where this Python's MPI can't work under the launcher.

    `vendor` is the name from mpi4py's `MPI.get_vendor()`, which works before MPI starts. There lies the use: MPICH
    ends the process from inside MPI_Init when its launcher speaks PMIx, with a message that says little. Setting
    MPIR_CVAR_PMI_VERSION says that this MPICH does know PMIx.
    """
    pmix_alone = "PMIX_RANK" in environ and "PMI_RANK" not in environ and "MPIR_CVAR_PMI_VERSION" not in environ
    if (vendor == "MPICH" and pmix_alone) or (vendor == "Open MPI" and launch.launcher == "mpich"):
        raise EnvironmentProblem(f"this Python's MPI is {vendor}, but {launch.title} started it. {_remedy(launch)}")


def outlives_ranks(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether MPI goes on when a rank dies: Open MPI's does under `mpirun --with-ft ulfm`, and only there."""
    return launched(environ).launcher == "openmpi" and environ.get("OMPI_MCA_mpi_ft_enable") == "1"


@contextmanager
def starting_within(seconds: float, speaks: bool) -> Iterator[None]:
    """End this process, with exit code 1, where the block takes longer; 0: never.

    For MPI_Init, which waits for ever for a rank that died before it, and lets no Python run meanwhile. Who `speaks` shows where
    it stood, and the others leave it the time to.
    """
    if not seconds:
        yield
        return
    with open(os.devnull, "w") as nowhere:
        limit, file = (seconds, sys.stderr) if speaks else (seconds + _SPEAKING, nowhere)
        faulthandler.dump_traceback_later(limit, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def prepare_to_survive(environ: MutableMapping[str, str] = os.environ) -> None:
    """Before MPI starts, where it `outlives_ranks`: leave out collectives that don't, and let agreements be real ones.

    coll/han and adapt may return wrong data as success after a death, across hosts (Open MPI's issues 11794, 13915).
    """
    if outlives_ranks(environ):
        environ.setdefault("OMPI_MCA_coll", "^han,adapt")
        environ.setdefault("OMPI_MCA_coll_ftagree_agreement", "1")


def limit_threads(launch: Launch, environ: MutableMapping[str, str] = os.environ) -> int:
    """Set the thread variables in `environ` to this rank's share of the cores, unless the user did; return the number.

    To be called before torch, NumPy or Numba is imported. A number that the user chose for OMP_NUM_THREADS is taken
    for all libraries and returned.
    """
    threads = _threads(environ, "OMP_NUM_THREADS") or share_of_cores(launch, environ)
    for name in THREAD_VARIABLES:
        environ.setdefault(name, str(threads))
    return threads


def share_of_cores(launch: Launch, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many threads this rank can run without taking the cores of another rank of its host, at least 1.

    It is the smaller of two: the cores this rank may run on (fewer than the host's where the launcher bound it), and
    the host's cores over its ranks (a bound rank may share its cores with others, as with --bind-to numa).
    """
    return max(1, min(usable_cores(), host_cores(environ) // (launch.local_size or launch.size)))


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return _affinity(0)


def host_cores(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores of this host that the job has: those of the container and of Slurm's allocation."""
    cores = max(_affinity(1), _affinity(0))  # process 1: the host's first, or the container's
    return min(cores, _number(environ, "SLURM_CPUS_ON_NODE") or cores)


def problems(launch: Launch, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return a sentence for each thing that would make training slow: here, thread variables above the share."""
    share = share_of_cores(launch, environ)
    excessive = [f"{name}={environ[name]}" for name in THREAD_VARIABLES if (_threads(environ, name) or 1) > share]
    if not excessive:
        return []
    ranks = launch.local_size or launch.size
    return [
        f"{', '.join(excessive)} with {ranks} {'rank' if ranks == 1 else 'ranks'} on this host: this rank may use "
        f"{usable_cores()} of {host_cores(environ)} cores, its share is {share}. "
        f"Unset {'them' if len(excessive) > 1 else 'it'}, or set {share}"
    ]


def _launcher(environ: Mapping[str, str]) -> str:
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return "openmpi"
    if "PMI_SIZE" in environ and ("MPI_LOCALNRANKS" in environ or not _in_step_of_srun(environ)):
        return "mpich"
    if _in_step_of_srun(environ):  # srun --mpi=pmi2 sets PMI_SIZE too
        return "slurm"
    return "pmix" if "PMIX_RANK" in environ else "none"


def _in_step_of_srun(environ: Mapping[str, str]) -> bool:
    step = _number(environ, "SLURM_STEP_ID")
    return step is not None and step < _FIRST_SPECIAL_STEP and "SLURM_STEP_NUM_TASKS" in environ


def _tasks_of_node(environ: Mapping[str, str]) -> int | None:
    """Return the entry of this node in a list like 3(x2),1."""
    entries = re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    tasks = [int(number) for number, times in entries for _ in range(int(times or 1))]
    node = _number(environ, "SLURM_NODEID") or 0
    return tasks[node] if node < len(tasks) else None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _threads(environ: Mapping[str, str], name: str) -> int | None:
    """Return the number of threads of a variable; OpenMP also allows one a level, as in 4,2."""
    text = environ.get(name, "").partition(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _affinity(process: int) -> int:
    try:
        return len(os.sched_getaffinity(process))
    except (AttributeError, OSError):  # macOS; a process that hides
        return os.cpu_count() or 1


def _remedy(launch: Launch) -> str:
    if launch.launcher == "slurm":
        return (
            "Let srun speak the language of this MPI: srun --mpi=pmix for Open MPI, srun --mpi=pmi2 for MPICH; "
            "or use mpirun inside the allocation"
        )
    beside = os.path.join(os.path.dirname(sys.executable), "mpirun")
    return f"Use the mpirun of this Python's MPI{f', {beside}' if os.path.exists(beside) else ''}"
