"""The kernels for GPUs: chosen by the tensor, right under Numba's simulator, and compiled to the code that was meant."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mpisign import kernels
from mpisign.kernels import Layout, Verdict

ARCHITECTURES = [(7, 0), (8, 0), (9, 0), (10, 0)]
CHECKED = {name for name in kernels.__all__ if callable(getattr(kernels, name)) and name[0].islower()}


def on_the_cpu(*flags: str, **environment: str) -> None:
    """Run the tests of `cuda_on_the_cpu.py` in a Python of their own: Numba decides on its simulator when it is imported."""
    file = Path(__file__).with_name("cuda_on_the_cpu.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", *flags, str(file)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed(?!.*skipped)", done.stdout, re.MULTILINE), done.stdout


def test_every_kernel_has_the_bits_of_the_reference_under_the_simulator() -> None:
    on_the_cpu("-m", "not slow", NUMBA_ENABLE_CUDASIM="1")


@pytest.mark.slow
def test_every_kernel_has_the_bits_of_the_reference_at_all_sizes_to_300() -> None:
    on_the_cpu("-m", "slow", NUMBA_ENABLE_CUDASIM="1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the kernels on a GPU: what is called is noted."""
    made: list[str] = []

    def stand_in(name: str) -> Any:
        return lambda *arguments, **settings: made.append(name)

    stub = ModuleType("mpisign.kernels.cuda")
    for name in CHECKED:
        setattr(stub, name, stand_in(name))
    monkeypatch.setitem(sys.modules, "mpisign.kernels.cuda", stub)
    monkeypatch.setattr(kernels, "cuda", stub, raising=False)
    return made


def test_a_tensor_on_a_gpu_is_treated_there(calls: list[str]) -> None:
    there: Any = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    layout, one = Layout([3]), np.ones(1, np.float32)
    verdict = Verdict(layout, "plus")
    kernels.sign_ballot(layout, [there], there, one, one, "plus", 0, there)
    kernels.stochastic_sign_ballot(layout, [there], 1.0, 0, there)
    kernels.descend([None, there], verdict, one, one)
    kernels.unpack(verdict, 0, torch.device("cuda", 0))
    kernels.disagreement(there, verdict)
    kernels.l1_norms(layout, [None, there])
    kernels.l2_norm(layout, [there])
    kernels.sign_sums(layout, there, there, there)
    kernels.residuals(layout, there, one, there, there)
    kernels.scaled_sign_means(layout, there, one, there)
    kernels.warm_up("cuda:0")
    assert set(calls) == CHECKED - {"stream"}
    assert len(calls) == len(set(calls))


def test_a_tensor_of_the_cpu_with_a_verdict_on_a_gpu_is_refused() -> None:
    verdict: Any = SimpleNamespace(message=SimpleNamespace(device=torch.device("cuda", 0)), layout=Layout([3]))
    with pytest.raises(TypeError, match="the tensors are on the CPU, the verdict is on cuda:0"):
        kernels.descend([torch.ones(3)], verdict, np.ones(1, np.float32), np.ones(1, np.float32))


def test_without_numba_cuda_the_error_says_what_to_install() -> None:
    program = (
        "import importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name == 'numba_cuda' else find(name, *rest);"
        "import mpisign.kernels.cuda"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError: the tensors are on a GPU, whose kernels need the package numba-cuda" in done.stderr


class Recorder:
    """Stands in for a compiled kernel: notes how it was configured, and called."""

    def __init__(self) -> None:
        self.configured: list[Any] = []
        self.called: list[Any] = []

    def __getitem__(self, configuration: Any) -> Any:
        self.configured.append(configuration)
        return lambda *arguments: self.called.append(arguments)


def test_work_is_queued_on_torchs_current_stream_of_the_tensors_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba_cuda", reason="no numba-cuda: pip install 'numba-cuda[cu12]'")
    from mpisign.kernels.cuda import launching

    entered: list[int] = []

    @contextmanager
    def entering(index: int) -> Iterator[None]:
        entered.append(index)
        yield

    streams = {"cuda:0": 5, "cuda:1": 0}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda at: SimpleNamespace(cuda_stream=streams[str(at)]))
    monkeypatch.setattr(
        launching.cuda, "gpus", type("Devices", (), {"__getitem__": lambda _, index: entering(index)})()
    )
    monkeypatch.setattr(launching.cuda, "external_stream", lambda number: f"stream {number}")
    kernel = Recorder()
    launching.launch(kernel, 3, torch.device("cuda", 0), np.int64(5), True)
    launching.launch(kernel, 3, torch.device("cuda", 0), 7, 8)
    launching.launch(kernel, 4, torch.device("cuda", 1), 9)
    launching.launch(kernel, 0, torch.device("cuda", 1), 9)
    assert entered == [0, 0, 1]
    assert kernel.configured == [(3, 256, "stream 5"), (4, 256, 0)]  # once for the same launch
    assert kernel.called == [(5, 1), (7, 8), (9,)]
    assert {type(argument) for arguments in kernel.called for argument in arguments} == {int}


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, tuple[int, int]], str]:
    """PTX of every kernel for every architecture; without a device, so numba.cuda must not ask for one."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no numba-cuda: pip install 'numba-cuda[cu12]' to compile the kernels")
    import compiling_cuda

    try:
        return compiling_cuda.all_kernels(ARCHITECTURES)
    except compiling_cuda.NoCompiler as error:
        pytest.skip(f"numba-cuda is here, but {error}: pip install 'numba-cuda[cu12]' to compile the kernels")


@pytest.mark.slow
def test_what_runs_is_what_was_looked_at(compiled: dict[tuple[str, tuple[int, int]], str]) -> None:
    from mpisign.kernels.cuda import KERNELS

    assert {kernel.py_func.__name__ for kernel in KERNELS} == {name for name, _ in compiled}
    for kernel in KERNELS:
        assert not kernel.targetoptions["fastmath"]
        assert not kernel.targetoptions[
            "lto"
        ]  # numba-cuda 0.30 forgets lto=False where jit is called without a function


WIDE_LOADS = {"momentum_signs", "stochastic_signs", "descend", "residuals", "power_sums"}
WIDE_STORES = {"momentum_signs", "descend", "residuals", "sign_sums"}


@pytest.mark.slow
def test_every_kernel_compiles_to_rounded_operations_and_wide_loads(
    compiled: dict[tuple[str, tuple[int, int]], str],
) -> None:
    names = {name for name, _ in compiled}
    assert len(compiled) == 13 * len(ARCHITECTURES)
    assert not (WIDE_LOADS | WIDE_STORES) - names
    for (name, architecture), ptx in compiled.items():
        where = f"{name}, cc {architecture}"
        assert f".target sm_{architecture[0]}{architecture[1]}" in ptx
        body = ptx[ptx.index(".visible .entry") :]
        assert not re.search(r"\bfma\.|\bmad\.(rn\.|ftz\.)?f", body), f"{where}: a fused multiply-add"
        assert ".ftz" not in body, f"{where}: denormals are flushed"
        assert not re.search(r"\.approx|\.full\.f32", body), f"{where}: an approximate division or root"
        assert not re.search(r"\.local\b|\bcall\b", body), f"{where}: local memory, or a call"
        assert not re.search(r"\bld\.(?!param|global|shared)\S*", body), f"{where}: a load from no named space"
        assert ("ld.global.v4.f32" in body) == (name in WIDE_LOADS), where
        assert ("st.global.v4.f32" in body) == (name in WIDE_STORES), where


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda cc: f"{cc[0]}.{cc[1]}")
def test_what_every_kernel_compiles_to_has_the_bits_of_the_reference(
    compiled: dict[tuple[str, tuple[int, int]], str], architecture: tuple[int, int]
) -> None:
    assert compiled
    on_the_cpu("-m", "not slow", MPISIGN_TEST_PTX=f"{architecture[0]}.{architecture[1]}", NUMBA_ENABLE_CUDASIM="0")


@pytest.mark.slow
def test_no_kernel_spills_registers(compiled: dict[tuple[str, tuple[int, int]], str], tmp_path: Path) -> None:
    import compiling_cuda

    assembler = compiling_cuda.ptxas()
    if assembler is None:
        pytest.skip("no ptxas: it comes with nvidia-cuda-nvcc-cu12, a part of numba-cuda[cu12]")
    for (name, (major, minor)), ptx in compiled.items():
        source = tmp_path / f"{name}_{major}{minor}.ptx"
        source.write_text(ptx)
        command = [assembler, "-v", "--gpu-name", f"sm_{major}{minor}", str(source), "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{name}, cc {major}.{minor}: {done.stderr}"
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr, f"{name}: {done.stderr}"
        registers = int(re.search(r"Used (\d+) registers", done.stderr).group(1))  # type: ignore[union-attr]
        assert registers <= 64, f"{name}, cc {major}.{minor}: {registers} registers leave half of the threads no room"
