"""Packages, and the cache of compiled kernels."""

import importlib
import os
from importlib import metadata
from pathlib import Path
from typing import Any

from .report import Report, count, first_line

PACKAGES = ("mpi4py", "numpy", "numba", "torch", "safetensors")


def installed(name: str) -> str:
    """Return the version of an installed distribution, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def examine_packages(report: Report) -> None:
    """Show versions, and whether the large packages can be imported."""
    report.fact("packages", ", ".join(f"{name} {installed(name) or 'missing'}" for name in PACKAGES))
    broken = [name for name in ("numpy", "numba", "torch") if not _imports(report, name)]
    if not broken:
        report.ok("numpy, numba and torch can be imported")
    report.fact("CUDA", "unknown, as torch can't be imported" if "torch" in broken else _cuda_devices())


def examine_cache(report: Report) -> None:
    """Find the folder that Numba would choose for compiled kernels."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [
        *([Path(chosen)] if chosen else []),
        Path(__file__).parents[1] / "kernels" / "__pycache__",
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


def _imports(report: Report, name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception as error:
        remedy = f"pip install --force-reinstall {name}" if installed(name) else f"pip install {name}"
        report.problem(f"{name} can't be imported: {first_line(error)}", remedy)
        return False
    return True


def _cuda_devices() -> str:
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    limited = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible}"
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    found = torch.cuda.device_count()
    names = "".join(f"; cuda:{index} is {_described(torch, index)}" for index in range(found))
    return f"{count(found, 'device')} seen by torch, which was {built}{limited}{names}"


def _described(torch: Any, index: int) -> str:
    try:
        found = torch.cuda.get_device_properties(index)
        return f"{found.name}, {found.total_memory / 2**30:.0f} GiB, compute capability {found.major}.{found.minor}"
    except Exception as error:  # busy, or broken
        return f"not to be asked ({first_line(error)})"


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
