"""Every benchmark runs at a tiny size and writes what its README promises; no time is asserted."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
HAS_MPIRUN = (Path(sys.executable).parent / "mpirun").exists() or shutil.which("mpirun") is not None
KEYS = {
    *("benchmark", "settings", "date", "commit", "dirty", "machine", "versions", "load_average"),
    *("figures", "comparisons", "checks"),
}


def run(name: str, folder: Path, *flags: str, repeats: int = 2, timeout: float = 120) -> dict:
    """Run a benchmark and return its record, whose form is checked."""
    file = folder / f"{name}.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / f"{name}.py"),
        *flags,
        "--repeats",
        str(repeats),
        "--json",
        str(file),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(file.read_text())
    assert set(record) == KEYS
    assert record["benchmark"] == name
    assert record["settings"]["repeats"] == repeats
    assert {"cpu", "cores", "usable_cores", "memory_bytes"} <= set(record["machine"])
    assert {"python", "torch", "numpy", "numba", "mpi4py"} <= set(record["versions"])
    for check in record["checks"]:
        assert set(check) == {"what", "value", "relation", "target", "met"}
        assert check["met"] == (
            check["value"] >= check["target"] if check["relation"] == "≥" else check["value"] <= check["target"]
        )
        assert check["what"] in done.stdout
    for comparison in record["comparisons"]:
        assert comparison["baseline"] in [row["name"] for row in comparison["rows"]]
        for row in comparison["rows"]:
            assert len(row["seconds"]) == repeats
            assert row["best_seconds"] == min(row["seconds"]) > 0
    return record


@pytest.fixture
def resnet50(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("resnet50")


def rows(record: dict) -> dict[str, list[str]]:
    return {entry["title"]: [row["name"] for row in entry["rows"]] for entry in record["comparisons"]}


def test_kernels_are_compared_with_numpy_and_with_plain_loops(tmp_path: Path) -> None:
    record = run("kernels", tmp_path, "--numel", "1000")
    assert {title: len(names) for title, names in rows(record).items()} == {
        "pack": 4,
        "momentum and pack": 3,
        "descent": 3,
        "vote of 16": 7,
        "disagreement": 2,
    }
    assert len(record["checks"]) == 10


def test_a_step_is_compared_with_both_of_torchs_sgd(tmp_path: Path) -> None:
    record = run("step", tmp_path, "--numel", "1000")
    assert [check["target"] for check in record["checks"]] == [0.85, 1.1]
    assert record["figures"]["tensors"] == 161
    assert {"pack", "communicate", "vote", "apply"} < set(record["figures"]["seconds_by_phase"])
    assert all(len(names) == 3 for names in rows(record).values())


def test_bytes_on_the_wire_are_those_of_the_ballots(resnet50: ModuleType, tmp_path: Path) -> None:
    record = run("bytes_on_the_wire", tmp_path, "--numel", "1000", "--ranks", "2", "4")
    words = 1 + 1225 + 2 + 16 + 1  # header; 100x784, 100, 10x100, 10
    mlp = {
        "coordinates": 79_510,
        "up": 8 * words,
        "down": 8 * (words + 1),
        "up_by_the_log": 8 * words,
        "float32": 318_040,
    }
    assert record["figures"]["784-100-10, 2 ranks"] == record["figures"]["784-100-10, 4 ranks"] == mlp
    words = 3 + sum(-(-resnet50.size(shape) // 64) for shape in resnet50.shapes(1000))
    assert record["figures"]["ResNet-50, 4 ranks"]["up"] == 8 * words
    checks = {check["what"].partition(":")[0]: check for check in record["checks"]}
    assert checks["784-100-10, 4 ranks"]["value"] == 318_040 / 9_960
    assert checks["784-100-10, 4 ranks"]["met"]


def test_the_shapes_are_those_of_resnet50(resnet50: ModuleType) -> None:
    shapes = resnet50.shapes()
    assert len(shapes) == len(resnet50.shapes(1000)) == 161
    assert sum(map(resnet50.size, shapes)) == resnet50.NUMEL == 25_557_032
    assert shapes[0] == (64, 3, 7, 7)
    assert shapes[-2:] == [(1000, 2048), (1000,)]
    assert (512, 512, 3, 3) in shapes


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun")
def test_startup_is_compared_with_bare_imports(tmp_path: Path) -> None:
    record = run("startup", tmp_path, "--ranks", "2", repeats=1, timeout=400)
    assert rows(record)["start of 2 ranks"] == [
        "bare imports, whole",
        "mpisign.train, to the first step",
        "mpisign.train, whole",
    ]
    assert record["figures"]["summary"]["ranks"] == 2
    assert len(record["checks"]) == 3


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Ten noisy drawings in place of MNIST."""
    random = np.random.default_rng(0)
    drawings = random.integers(256, size=(10, 28, 28))
    labels = np.arange(400) % 10
    x = np.clip(drawings[labels] + random.normal(0, 60, (400, 28, 28)), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "images.npz", x_train=x[:300], y_train=labels[:300], x_test=x[300:], y_test=labels[300:])
    return tmp_path / "images.npz"


@pytest.mark.slow
def test_adversaries_are_outvoted_below_one_half_and_a_mean_is_not_safe(images: Path, tmp_path: Path) -> None:
    record = run("adversaries", tmp_path, "--data", str(images), "--batch-size", "16", "--steps", "30", "--short", "10")
    assert record["settings"]["data"] == "images.npz"
    checks = {check["what"].partition(":")[0]: check["value"] for check in record["checks"]}
    assert set(checks) == {
        "Signum, 7 of 15 inverting",
        "Signum",
        "Signum, 3 of 7 inverting",
        "Signum, 4 of 7 inverting",
        "SGD, all-reduced, 7 of 15 inverting 8 times as loud",
    }
    assert checks["Signum"] == 0  # the same bits, however loud
    assert checks["Signum, 3 of 7 inverting"] > 0.9 > 0.3 > checks["Signum, 4 of 7 inverting"]
    assert checks["SGD, all-reduced, 7 of 15 inverting 8 times as loud"] < 0.5
    for of in ("Signum, 7 of 15 inverting", "SGD, all-reduced, 7 of 15 inverting"):
        grid, judged = record["figures"][f"{of}: grid"], record["figures"][of]
        best = max(grid["lr"], key=lambda lr: grid["lr"][lr]["held_out"])
        assert judged["lr"] == float(best)
        assert len(judged["test_accuracy"]) == 2


def test_a_mistake_in_the_flags_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--repeats", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "wanted a whole number of at least 1, got 0" in done.stderr
