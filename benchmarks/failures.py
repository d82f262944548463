"""Kill ranks of real jobs at random moments, many times, and count how many jobs end as they should.

python benchmarks/failures.py one two recovery start last     # Open MPI with ULFM: the others go on
python benchmarks/failures.py resume --ways server            # any MPI: continued from a checkpoint, to the bit
"""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from startup import end, mpirun

WAYS = {
    "server": ["--vote", "server"],
    "sharded": ["--vote", "sharded"],
    "tree": ["--vote", "tree"],
    "relaysgd": ["--algorithm", "relaysgd", "--lr", "0.05"],
}
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
ATTEMPTS = 20
"""Jobs of which the first is taken whose victims died before its end."""

TIMES = ("seconds", "seconds_by_phase", "first_step_at")


@dataclass
class Trial:
    """What became of one job."""

    code: int | None  # None: it hung, and was ended
    started: float
    seconds: float
    output: str
    summary: dict[str, Any] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def recoveries(self) -> list[float]:
        return [event["seconds"] for event in self.events if event["event"] == "failure"]


class Trials:
    """Jobs of some ranks and steps, all alike but for what is done to them."""

    def __init__(self, options: Any, chance: random.Random) -> None:
        self.ranks, self.steps, self.limit, self.chance = options.ranks, options.steps, options.limit, chance
        self._seconds: dict[str, float] = {}
        self._starts: dict[str, float] = {}
        self._undisturbed = tempfile.TemporaryDirectory()  # jobs that nobody killed, to compare with

    def job(
        self, way: str, folder: Path, *more: str, ulfm: bool = True, meanwhile: Callable[[int], None] | None = None
    ) -> Trial:
        """Run one job; `meanwhile` is given the id of its mpirun, in a thread."""
        command = [
            mpirun(),
            *(["--with-ft", "ulfm"] if ulfm else []),
            "-n",
            str(self.ranks),
            sys.executable,
            "-m",
            "mpisign.train",
        ]
        command += [
            *WAYS[way],
            "--steps",
            str(self.steps),
            "--timeout",
            str(self.limit / 2),
            "--output",
            str(folder),
            *more,
        ]
        environment = SETTINGS | dict(os.environ) | {"PYTHONPATH": str(harness.ROOT)}
        started = time.time()
        with tempfile.TemporaryFile("w+") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            job = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
            if meanwhile is not None:
                threading.Thread(target=meanwhile, args=[job.pid], daemon=True).start()
            try:
                code: int | None = job.wait(self.limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end(job)
            output.seek(0)
            text = output.read()
        return Trial(code, started, time.time() - started, text, *_written(folder))

    def undisturbed(self, way: str, ulfm: bool = True) -> float:
        """Return how long a job trains where nobody does anything to it."""
        if way not in self._seconds:
            with tempfile.TemporaryDirectory() as folder:
                trial = self.job(way, Path(folder) / "run", ulfm=ulfm)
            if trial.code or trial.summary is None:
                raise SystemExit(f"{way}: a job to which nothing is done fails\n{trial.output[-3000:]}")
            self._seconds[way] = trial.summary["seconds"]
            self._starts[way] = trial.summary["first_step_at"] - trial.started
        return self._seconds[way]

    def until_first_step(self, way: str) -> float:
        """Return how long such a job takes from its launch to its first step."""
        self.undisturbed(way)
        return self._starts[way]

    # ---- what is done to a job ----

    def one(self, way: str, folder: Path) -> tuple[Trial, list[int]]:
        """One rank dies at a random moment of training."""
        return self._killed(way, folder, [self.chance.uniform(0, self.undisturbed(way))])

    def two(self, way: str, folder: Path) -> tuple[Trial, list[int]]:
        """Two ranks die within 20 ms."""
        moment = self.chance.uniform(0, self.undisturbed(way))
        return self._killed(way, folder, [moment, moment + self.chance.uniform(0, 0.02)])

    def recovery(self, way: str, folder: Path) -> tuple[Trial, list[int]]:
        """A second rank dies while the others recover from the first one's death, or about then."""
        moment = self.chance.uniform(0, self.undisturbed(way))
        return self._killed(way, folder, [moment, moment + self.chance.uniform(0.02, 0.3)])

    def last(self, way: str, folder: Path) -> tuple[Trial, list[int]]:
        """One rank dies in the last step, or while the others evaluate and finish."""
        rank = self.chance.randrange(self.ranks)
        if self.chance.random() < 0.5:
            return self.job(way, folder, "--inject", f"kill:rank={rank},step={self.steps - 1}"), [rank]
        return self._killed(way, folder, [self.undisturbed(way) * self.chance.uniform(0.9, 1.05)])

    def start(self, way: str, folder: Path) -> tuple[Trial, list[int]]:
        """One rank dies while MPI, the data or the model are set up."""
        rank, delay = self.chance.randrange(self.ranks), self.chance.uniform(0.1, 1) * self.until_first_step(way)

        def kill(launcher: int) -> None:
            time.sleep(delay)
            for pid in _ranks_of(launcher, rank):
                os.kill(pid, signal.SIGKILL)

        return self.job(way, folder, "--timeout", "20", meanwhile=kill), [rank]

    def _killed(self, way: str, folder: Path, moments: list[float]) -> tuple[Trial, list[int]]:
        ranks = self.chance.sample(range(self.ranks), len(moments))
        faults = [f"kill:rank={rank},after={moment:.4f}" for rank, moment in zip(ranks, moments, strict=True)]
        return self.job(way, folder, "--inject", ";".join(faults)), ranks

    def was_over(self, trial: Trial, victims: list[int]) -> bool:
        """Tell whether a job had come to its end before all of them died: it says nothing then."""
        return trial.code == 0 and trial.summary is not None and bool(set(victims) & set(trial.summary["ranks_left"]))

    # ---- how it should end ----

    def survived(self, scenario: str, way: str, folder: Path) -> tuple[str, Trial]:
        """Kill, and say what is wrong with how the job ended; "" for nothing."""
        for _ in range(ATTEMPTS):
            trial, victims = getattr(self, scenario)(way, folder / "run")
            if not self.was_over(trial, victims):
                break
            assert trial.summary is not None
            self._seconds[way] = min(self.undisturbed(way), trial.summary["seconds"])  # moments were drawn too late
            shutil.rmtree(folder / "run")
        else:
            return f"in {ATTEMPTS} jobs rank {victims} did not die", trial
        if trial.code is None:
            return f"hung for {self.limit} s", trial
        if scenario == "start" and trial.summary is None and trial.code and _says_why(trial.output):
            return "", trial  # before MPI is up nobody can go on
        if trial.code or trial.summary is None:
            return f"exit code {trial.code}, {'no ' if trial.summary is None else ''}summary", trial
        dead = set(range(self.ranks)) - set(trial.summary["ranks_left"])
        if dead != set(victims) or trial.summary["steps"] != self.steps:
            return f"ranks {dead} are missing, {victims} were to die, {trial.summary['steps']} steps", trial
        return "", trial

    def resumed(self, way: str, folder: Path) -> tuple[str, Trial]:
        """Kill the whole job by one of its ranks, continue it, and compare with one that was not killed."""
        every = ["--checkpoint-every", str(self.chance.randrange(3, 30))]
        whole = Path(self._undisturbed.name) / way
        if not whole.exists():
            self.job(way, whole, ulfm=False)
        for _ in range(ATTEMPTS):
            moment, rank = self.chance.uniform(0, self.undisturbed(way, ulfm=False)), self.chance.randrange(self.ranks)
            kill = f"kill:rank={rank},after={moment:.4f}"
            killed = self.job(way, folder / "run", *every, "--inject", kill, ulfm=False)
            if killed.summary is None:
                break
            shutil.rmtree(folder / "run")  # the moment was too late
        else:
            return f"in {ATTEMPTS} jobs rank {rank} did not die", killed
        trial = self.job(way, folder / "run", *every, "--resume", "auto", ulfm=False)
        if trial.code or trial.summary is None:
            return f"exit code {trial.code}", trial
        same = _compared(whole) == _compared(folder / "run")
        return "" if same else "weights or metrics differ from those of a run that nobody killed", trial


def _says_why(output: str) -> bool:
    """Tell whether ranks have said that one died: by themselves, by where they stood when their time was up, or through MPI."""
    return any(text in output for text in ("mpisign: ", "_wait_for_all_ranks_to_start", "MPI_INIT failed"))


def _written(folder: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    summary, events = folder / "summary.json", folder / "events.jsonl"
    return (
        json.loads(summary.read_text()) if summary.exists() else None,
        [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else [],
    )


def _compared(folder: Path) -> tuple[Any, ...]:
    def timeless(figures: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in figures.items() if name not in TIMES}

    rows = [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return (
        rows,
        timeless(json.loads((folder / "summary.json").read_text())),
        (folder / "model.safetensors").read_bytes(),
    )


def _ranks_of(launcher: int, rank: int) -> list[int]:
    """The processes below a launcher that are this rank."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if f"OMPI_COMM_WORLD_RANK={rank}\0" in (entry / "environ").read_text() and _is_below(entry.name, launcher):
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError, ValueError):
            continue
    return found


def _is_below(process: str, ancestor: int) -> bool:
    while int(process) > 1:
        if int(process) == ancestor:
            return True
        process = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
    return False


def main() -> None:
    """Count, and check that all jobs ended well."""
    flags = harness.parser("failures", __doc__, repeats=25)
    flags.add_argument("scenarios", nargs="+", choices=["one", "two", "recovery", "start", "last", "resume"])
    flags.add_argument("--ways", default=",".join(WAYS), metavar="NAMES", help="how they train (default: %(default)s)")
    flags.add_argument("--seed", type=int, default=0, metavar="N", help="of ranks and moments (default: 0)")
    flags.add_argument("--ranks", type=int, default=6, metavar="N", help="of each job (default: 6)")
    flags.add_argument("--steps", type=int, default=200, metavar="N", help="of each job (default: 200)")
    flags.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="then a job hangs (default: 120)")
    settings = flags.parse_args()
    record = harness.Record("failures", settings)
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    rows = []
    for scenario in settings.scenarios:
        for way in settings.ways.split(","):
            trials = Trials(settings, random.Random(f"{scenario} {way} {settings.seed}"))
            rows.append(_counted(trials, scenario, way, settings.repeats))
    record.figure("rows", rows)
    for scenario in settings.scenarios:
        own = [row for row in rows if row["scenario"] == scenario]
        record.check(
            f"{scenario}: jobs that ended well", sum(row["good"] for row in own), "≥", sum(row["of"] for row in own)
        )
    times = [seconds for row in rows for seconds in row["recoveries"]]
    if {"one", "two", "recovery", "last"} & set(settings.scenarios):
        record.check("recoveries", len(times), "≥", 1)
    if times:
        record.check("median recovery in seconds", statistics.median(times), "≤", 0.5)
        record.check("worst recovery in seconds", max(times), "≤", 3.0)
    record.close()


def _counted(trials: Trials, scenario: str, way: str, count: int) -> dict[str, Any]:
    good, recoveries, took = 0, list[float](), list[float]()
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            if scenario == "resume":
                problem, trial = trials.resumed(way, Path(folder))
            else:
                problem, trial = trials.survived(scenario, way, Path(folder))
        good += not problem
        took.append(trial.seconds)
        recoveries += trial.recoveries
        if problem:
            print(f"{scenario} {way}, job {number}: {problem}\n{trial.output[-3000:]}\n{trial.events}", flush=True)
    middle, worst = (statistics.median(recoveries), max(recoveries)) if recoveries else (0.0, 0.0)
    times = f"{len(recoveries)} recoveries, median {middle:.2f} s, worst {worst:.2f} s"
    print(f"{scenario:9} {way:9} {good} of {count}; {times}; a job {statistics.median(took):.1f} s", flush=True)
    return {"scenario": scenario, "way": way, "good": good, "of": count, "recoveries": recoveries, "jobs": took}


if __name__ == "__main__":
    main()
