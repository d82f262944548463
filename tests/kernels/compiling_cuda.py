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
    from numba.cuda import dispatcher

    try:
        cuda.compile(lambda a: None, types.void(types.int64), cc=architectures[0], device=False, abi="numba")
    except Exception as error:
        raise NoCompiler(f"it can't compile ({error})".replace("\n", " ")) from error
    from mpisign.kernels.cuda import KERNELS

    found, plain = {}, dispatcher.get_current_device
    try:
        for cc in architectures:
            # a function that kernels call is compiled for the device that is there; what it is compiled to is the same
            dispatcher.get_current_device = lambda cc=cc: SimpleNamespace(compute_capability=cc)
            for kernel in KERNELS:
                found[kernel.py_func.__name__, cc] = _ptx(cuda, kernel, types, cc)
    finally:
        dispatcher.get_current_device = plain
    return found


def _ptx(cuda: Any, kernel: Any, types: Any, cc: tuple[int, int]) -> str:
    signature = types.void(*[types.int64] * len(inspect.signature(kernel.py_func).parameters))
    ptx, _ = cuda.compile(kernel.py_func, signature, cc=cc, device=False, abi="numba")
    return str(ptx)


def ptxas() -> str | None:
    """Return the path of the assembler of the wheels, or of the machine."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    wheels = (path for folder in folders for path in Path(folder).glob("*/bin/ptxas"))
    return next((str(path) for path in wheels), shutil.which("ptxas"))
