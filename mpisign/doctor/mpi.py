"""The MPI of this Python: whether it starts, and what it can do."""

import ctypes
import os
import platform
from types import ModuleType

from ..environment import Launch, check_vendor, check_world, starting_within
from ..errors import EnvironmentProblem
from .launchers import INSTALL_MPI
from .packages import installed
from .ranks import Place, place_of
from .report import Report, cause_and_remedy, count, first_line

PATIENCE = 60.0
"""Seconds that MPI may take to start; it waits for ever for a rank that has none."""

_THREAD_LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")


def import_mpi(report: Report) -> ModuleType | None:
    """Return mpi4py's module MPI, not started, or None."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except Exception as error:  # ImportError without mpi4py, RuntimeError without an MPI library
        report.fact("MPI", "none")
        report.problem(f"no MPI: {first_line(error)}", INSTALL_MPI)
        return None
    return MPI


def examine_mpi(report: Report, mpi: ModuleType, launch: Launch) -> list[Place]:
    """Start MPI, ask it, end it. Return the places of all ranks on MPI's rank 0, and none on the others."""
    vendor, release = mpi.get_vendor()
    standard = ".".join(map(str, mpi.Get_version()))
    report.fact("MPI", f"{vendor} {'.'.join(map(str, release))}, MPI {standard}, mpi4py {installed('mpi4py') or '?'}")
    try:
        check_vendor(vendor, launch)  # before MPI starts: it may end the process
        return _ask_started_mpi(report, mpi, launch)
    except EnvironmentProblem as error:
        report.problem(*cause_and_remedy(str(error)))
        return [place_of(launch, platform.node())]


def _ask_started_mpi(report: Report, mpi: ModuleType, launch: Launch) -> list[Place]:
    with starting_within(PATIENCE, launch.rank <= 1):
        provided = mpi.Init_thread(mpi.THREAD_MULTIPLE)
    try:
        world = mpi.COMM_WORLD
        check_world(world.size, launch)
        places: list[Place] | None = world.gather(place_of(launch, mpi.Get_processor_name()))
        if places is None:
            return []
        _describe_threads(report, provided)
        report.fact("CUDA-aware", _cuda_awareness(mpi))
        report.fact("failures", mitigation(mpi.get_vendor(), launch))
        report.ok(f"MPI starts, with {count(world.size, 'rank')}")
        return places
    finally:
        mpi.Finalize()


def _describe_threads(report: Report, provided: int) -> None:
    level = _THREAD_LEVELS[provided] if 0 <= provided < len(_THREAD_LEVELS) else str(provided)
    report.fact("thread level", f"{level} (asked for MULTIPLE)")
    if level != "MULTIPLE":
        report.warn(
            f"MPI gives thread level {level}, so a watchdog thread can't end a job that hangs",
            "use an MPI that was built with threads, or rely on the time limit of the job",
        )


def _cuda_awareness(mpi: ModuleType) -> str:
    """Say whether MPI takes pointers to GPU memory. MPI must have been started."""
    try:
        return _ask_for_cuda(mpi)
    except Exception as error:  # an old MPI without Get_info, a library that can't be opened
        return f"unknown ({first_line(error)})"


def _ask_for_cuda(mpi: ModuleType) -> str:
    kinds = mpi.COMM_WORLD.Get_info().Get("mpi_memory_alloc_kinds")
    if kinds and "cuda" in kinds:
        return f"yes (mpi_memory_alloc_kinds={kinds})"
    library = ctypes.CDLL(mpi.__file__)  # finds the functions of the MPI library that it is linked to
    if hasattr(library, "MPIX_GPU_query_support"):
        answer = ctypes.c_int(0)
        failed = library.MPIX_GPU_query_support(0, ctypes.byref(answer))
        return "yes (MPIX_GPU_query_support)" if answer.value and not failed else "no (MPIX_GPU_query_support)"
    if hasattr(library, "MPIX_Query_cuda_support"):
        return f"{'yes' if library.MPIX_Query_cuda_support() else 'no'} (MPIX_Query_cuda_support)"
    return "unknown: this MPI has no way to ask"


def mitigation(vendor: tuple[str, tuple[int, ...]], launch: Launch) -> str:
    """Say whether ranks can go on after one died. `Get_failed` is no sign: it answers in every MPI."""
    if vendor[0] != "Open MPI" or vendor[1] < (5,):
        return f"{vendor[0]} ends the job when a rank dies; start again from a checkpoint"
    if launch.launcher == "openmpi" and os.environ.get("OMPI_MCA_mpi_ft_enable") == "1":  # noqa: SIM112
        return "ULFM is on: the other ranks can go on when one dies"
    return "off: the job ends when a rank dies; mpirun --with-ft ulfm turns ULFM on"
