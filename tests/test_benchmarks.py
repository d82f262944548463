"""Every benchmark runs at a tiny size and writes what its README promises; no time is asserted."""

import gc
import importlib
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mpisign import simulate
from mpisign.tasks.models import small_cnn

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
@pytest.mark.launches
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


@pytest.mark.slow
@pytest.mark.launches
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun")
def test_votes_are_compared_with_all_reduces_and_with_each_other(tmp_path: Path) -> None:
    votes = ["server", "sharded", "hierarchical", "tree"]
    record = run("votes", tmp_path, "--numel", "1000", "--numels", "100", "--ranks", "3", timeout=300)
    found = rows(record)
    assert found["2 ranks, 1,000 coordinates"] == [*votes, "MPI_Allreduce, float32", "gloo all-reduce, float32"]
    assert found["3 ranks, 100 coordinates"] == votes
    assert len(record["checks"]) == 2


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
        "SGD, all-reduced, 0 of 15 inverting",
    }
    assert checks["SGD, all-reduced, 0 of 15 inverting"] > 0.6  # it does learn
    assert checks["Signum"] == 0  # the same bits, however loud
    assert checks["Signum, 3 of 7 inverting"] > 0.9 > 0.3 > checks["Signum, 4 of 7 inverting"]
    assert checks["SGD, all-reduced, 7 of 15 inverting 8 times as loud"] < 0.5
    for of in ("Signum, 7 of 15 inverting", "SGD, all-reduced, 7 of 15 inverting"):
        grid, judged = record["figures"][f"{of}: grid"], record["figures"][of]
        best = max(grid["lr"], key=lambda lr: grid["lr"][lr]["held_out"])
        assert judged["lr"] == float(best)
        assert len(judged["test_accuracy"]) == 2


@pytest.mark.slow
def test_workers_that_know_few_classes_are_compared_with_all_reduce_and_with_themselves_when_messages_get_lost(
    images: Path, tmp_path: Path
) -> None:
    tiny = ("--data", str(images), "--workers", "4", "--steps", "6", "--batch-size", "8")
    record = run("heterogeneous", tmp_path, *tiny, "--grid", "0.02", "0.05")
    figures = record["figures"]
    methods = [name for name in figures if not name.endswith(": grid")]
    assert len(methods) == 7
    for method in methods:
        grid, judged = figures[f"{method}: grid"], figures[method]
        best = max(grid, key=lambda lr: grid[lr]["held_out"])
        assert judged["lr"] == float(best)
        assert len(judged["test"]) == len(judged["curves"]) == 2
        assert judged["test"][0] == grid[best]["test"]
        assert judged["steps"][-1] == 6
    (check,) = record["checks"]
    better = max(np.mean(figures[method]["test"]) for method in methods if method.startswith("RelaySGD"))
    assert check["value"] == pytest.approx(100 * (np.mean(figures["all-reduce"]["test"]) - better))
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "heterogeneous.png").read_bytes().startswith(b"\x89PNG")

    lossy = run("lost_messages", tmp_path, *tiny, "--tuned", str(tmp_path / "heterogeneous.json"), repeats=1)
    assert len(lossy["checks"]) == 8
    for name, case in lossy["figures"].items():
        method = "RelaySGD, double trees" if name.startswith("RelaySGD") else name
        assert set(case) == {"0", "0.01", "0.1"}
        for entry in case.values():
            assert [float(lr) / figures[method]["lr"] for lr in entry["grid"]] == pytest.approx([1, 0.5, 0.25])
            best = max(entry["grid"], key=lambda lr: entry["grid"][lr]["held_out"])
            assert f"{entry['lr']:g}" == best
            assert entry["test"] == [entry["grid"][best]["test"]]
    ring, tuned = lossy["figures"]["DP-SGD, ring"]["0"], figures["DP-SGD, ring"]
    assert ring["grid"][f"{tuned['lr']:g}"]["test"] == tuned["test"][0]  # the same run


@pytest.mark.parametrize("name", ["heterogeneous", "lost_messages"])
def test_the_table_in_the_readme_is_what_the_record_says(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    record = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    table = importlib.import_module(name).table(record["figures"])
    assert table in (ROOT / "benchmarks" / "README.md").read_text()


def test_the_layers_over_patches_are_the_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    heterogeneous = importlib.import_module("heterogeneous")
    over, by = heterogeneous.network(), small_cnn((1, 28, 28), 10)
    with torch.no_grad():
        by[0].weight.copy_(over[0].weight.view(8, 1, 5, 5))
        by[0].bias.copy_(over[0].bias)
        by[3].weight.copy_(over[3].weight.view(10, 64, 8).transpose(1, 2).reshape(10, 512))
        by[3].bias.copy_(over[3].bias)
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(over(heterogeneous.patches(x)), by(x))


@pytest.fixture
def relay_step(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("relay_step")


@pytest.mark.parametrize("size", [4, 7, 16])
def test_along_double_trees_no_rank_sends_or_receives_much_more_than_two_models(
    relay_step: ModuleType, size: int
) -> None:
    sent, received = zip(*relay_step.traffic(size, 1000), strict=True)
    assert max(sent) == max(received) == pytest.approx(2, abs=0.005)  # and a count with each of four messages
    assert sum(sent) == pytest.approx(sum(received)) == pytest.approx(2 * (size - 1), rel=0.005)  # all edges, both ways


def test_a_relay_keeps_one_message_an_edge(relay_step: ModuleType) -> None:
    ranks = relay_step.memory(4, 1000, topology="chain", fill="counts")
    for neighbors, held in zip([1, 2, 2, 1], ranks, strict=True):
        wanted = {"model": 2, "optimizer": 1, "reference": 0, "sums": 1, "received": neighbors, "sent": neighbors}
        assert held == pytest.approx(wanted, abs=0.01)  # counts are an element of each message
    initial = relay_step.memory(4, 1000, topology="chain", fill="initial")
    assert [held["reference"] for held in initial] == [1] * 4


def test_no_vector_of_a_relay_escapes_the_count_of_memory(relay_step: ModuleType) -> None:
    def storages() -> dict[int, int]:
        gc.collect()
        there = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))
        found = [tensor.untyped_storage() for tensor in there if tensor.layout == torch.strided]
        return {storage.data_ptr(): storage.nbytes() for storage in found if storage.nbytes() >= 1000}

    def body(comm: Any) -> Any:
        x, optimizer = relay_step.relay(1000, comm, topology="double_binary_trees")
        for _ in range(3):
            optimizer.step()
        optimizer.settle()
        return x, optimizer

    before = sum(storages().values())
    alive = simulate(4, body)
    models = (sum(storages().values()) - before) / 4000
    counted = sum(sum(held.values()) for held in relay_step.memory(4, 1000, topology="double_binary_trees"))
    # parameters and gradients are not counted; the simulator may keep the last message that was waited for, half a
    # model; a vector of half a model that escaped on each rank would be two
    assert models == pytest.approx(2 * len(alive) + counted, abs=0.6)


def test_a_slow_message_is_there_no_earlier_than_it_should(relay_step: ModuleType) -> None:
    def body(comm: Any) -> tuple[float, list[float]]:
        slow = relay_step.DelayedComm(comm, 0.05)
        started = time.perf_counter()
        pending = slow.post({1 - comm.rank: torch.full((3,), float(comm.rank))})
        inbox = pending.wait()
        return time.perf_counter() - started, inbox[1 - comm.rank].tolist()

    for rank, (seconds, came) in enumerate(simulate(2, body)):
        assert seconds >= 0.05
        assert came == [1.0 - rank] * 3


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun")
def test_a_step_that_overlaps_is_compared_with_one_that_waits(tmp_path: Path) -> None:
    record = run("relay_step", tmp_path, "--sizes", "4", "--numel", "1000", "--steps", "2", "--seconds", "0.01")
    assert list(rows(record).values()) == [["synchronous", "overlapped"]] * 2
    assert len(record["checks"]) == 5


@pytest.mark.slow
def test_the_kernels_of_a_gpu_are_compared_with_the_cpus_and_with_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    record = run("gpu", tmp_path, "--numel", "300", "--long", "200", "--calls", "1")
    assert record["figures"]["card"] == "simulated"
    equal = record["figures"]["bits equal to the CPU's"]
    assert len(equal) == 11
    assert all(equal.values())
    assert len(record["comparisons"]) == 11
    assert len(record["checks"]) == 1 + 1 + 10  # bits; the step; all speeds but the norm's
    assert record["checks"][0]["met"]


def test_a_whole_step_is_timed_with_its_checksum(mpirun: Any, tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    flags = ["--device", "cpu", "--numel", "3000", "--steps", "2", "--found", found]
    done = mpirun(2, ROOT / "benchmarks" / "gpu_step.py", *flags)
    assert done.returncode == 0, done.stderr
    step = json.loads(found.read_text())
    assert step["ranks"] == 2
    assert step["seconds"] > 0
    assert len(step["checksum"]) == 14


def test_a_mistake_in_the_flags_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--repeats", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "wanted a whole number of at least 1, got 0" in done.stderr


def test_a_third_of_the_ranks_die_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    deaths = importlib.import_module("deaths").plan(12, 1 / 3, 1500, random.Random(0)).split(";")
    ranks, steps = zip(*(re.fullmatch(r"kill:rank=(\d+),step=(\d+)", death).groups() for death in deaths), strict=True)
    assert len(set(ranks)) == 4
    assert steps == ("300", "600", "900", "1200")


def test_the_interval_of_a_median_is_that_of_the_binomial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    interval = importlib.import_module("handling").interval
    numbers = [float(number) for number in range(1, 16)]
    assert interval(numbers) == (4, 12)  # tables of the sign test: n = 15, 6 and 9
    assert interval(numbers[:6]) == (1, 6)
    assert interval(numbers[:9]) == (2, 8)
    assert interval(numbers[:2]) == (1, 2)


@pytest.mark.slow
@pytest.mark.launches
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun")
def test_handlings_are_compared_within_a_job(tmp_path: Path) -> None:
    flags = ["--jobs", "1", "--ranks", "2", "--steps", "4", "--batch-size", "100"]
    record = run("handling", tmp_path, *flags, repeats=1, timeout=300)
    found = rows(record)
    assert found["a step of 2 ranks, without ULFM"] == ["none", "quorum", "checkpoints"]
    if "Open MPI" in record["figures"]["mpi"]:
        assert found["a step of 2 ranks, with ULFM"] == ["none", "ULFM", "ULFM and checkpoints"]
    assert len(record["checks"]) == (5 if len(found) == 2 else 2)


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("failures")


def trials_of(failures: ModuleType, outcome: Any) -> Any:
    """Jobs of six ranks that don't run: each ends as `outcome(victims, number of the job)` says."""

    class Pretended(failures.Trials):
        jobs = 0

        def job(self, way: str, folder: Path, *more: str, **_: Any) -> Any:
            self.jobs += 1
            folder.mkdir(parents=True, exist_ok=True)
            victims = [int(rank) for rank in re.findall(r"kill:rank=(\d)", " ".join(more))]
            code, dead = outcome(victims, self.jobs)
            left = [rank for rank in range(6) if rank not in dead]
            summary = {"seconds": 1.0, "first_step_at": 5.0, "ranks_left": left, "steps": 200}
            return failures.Trial(code, 0.0, 9.0, "", None if code else summary)

    options = SimpleNamespace(ranks=6, steps=200, limit=10.0)
    return Pretended(options, random.Random(0))


@pytest.mark.parametrize("scenario", ["one", "two", "recovery", "last", "start"])
def test_a_job_in_which_nobody_died_is_no_job_that_was_survived(
    failures: ModuleType, scenario: str, tmp_path: Path
) -> None:
    problem, _ = trials_of(failures, lambda victims, number: (0, [])).survived(scenario, "server", tmp_path)
    assert "did not die" in problem


@pytest.mark.parametrize("scenario", ["one", "two", "recovery"])
def test_jobs_are_judged_by_who_died(failures: ModuleType, scenario: str, tmp_path: Path) -> None:
    def judged(outcome: Any) -> str:
        return str(trials_of(failures, outcome).survived(scenario, "server", tmp_path / "run")[0])

    assert judged(lambda victims, number: (0, victims)) == ""
    assert judged(lambda victims, number: (0, victims if number > 4 else victims[1:])) == ""  # drawn again
    another = judged(lambda victims, number: (0, [*victims, min({0, 1, 2} - {*victims})] if victims else []))
    assert "are missing" in another
    assert "exit code 75" in judged(lambda victims, number: (75 if victims else 0, victims))


def test_a_run_that_nobody_killed_is_not_continued(failures: ModuleType, tmp_path: Path) -> None:
    problem, _ = trials_of(failures, lambda victims, number: (0, [])).resumed("server", tmp_path)
    assert "did not die" in problem
