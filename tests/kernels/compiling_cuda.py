"""Compiles the CUDA kernels to PTX where there is a compiler and no device."""

import inspect
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NoCompiler(RuntimeError):
    """numba-cuda is installed without NVVM."""


def all_kernels(architectures: list[tuple[int, int]]) -> dict[tuple[str, tuple[int, int]], str]:
    """Return the PTX of each kernel for each compute capability."""
    from numba import cuda, types

    try:
        cuda.compile(lambda a: None, types.void(types.int64), cc=architectures[0], device=False, abi="numba")
    except Exception as error:
        raise NoCompiler(f"it can't compile ({error})".replace("\n", " ")) from error
    from mpisign.kernels.cuda import KERNELS

    return {(kernel.py_func.__name__, cc): one_kernel(kernel, cc) for cc in architectures for kernel in KERNELS}


def one_kernel(kernel: Any, cc: tuple[int, int]) -> str:
    """Return the PTX of a kernel for a compute capability."""
    from numba import cuda, types
    from numba.cuda import dispatcher

    plain, signature = (
        dispatcher.get_current_device,
        types.void(*[types.int64] * len(inspect.signature(kernel.py_func).parameters)),
    )
    # a function that kernels call is compiled for the device that is there; what it is compiled to is the same
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=cc)
    try:
        ptx, _ = cuda.compile(kernel.py_func, signature, cc=cc, device=False, abi="numba")
    finally:
        dispatcher.get_current_device = plain
    return str(ptx)


def ptxas() -> str | None:
    """Return the path of the assembler of the wheels, or of the machine."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    wheels = (path for folder in folders for path in Path(folder).glob("*/bin/ptxas"))
    return next((str(path) for path in wheels), shutil.which("ptxas"))
