"""Corrupt checkpoints at random, and count how many corruptions are named, with the others' states coming back bit for bit.

Each corruption is made on a fresh copy of the checkpoints of one run: three steps of four ranks. It counts as named if

* `steps(full=True)` gives every checkpoint that was hit a problem that says which rank's file it is, and no other one;
* a run that resumes, which reads headers first and then its own files, refuses those with CheckpointError too;
* the checkpoints that were not hit load, and hold what was saved.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import numpy as np
import torch

from mpisign import seeding
from mpisign.checkpoints import Folder, copied, load, pack, steps
from mpisign.checkpoints.names import file_name, step_folder
from mpisign.errors import CheckpointError

STEPS, SIZE = (100, 110, 120), 4

Hit = dict[int, set[int]]
"""The ranks whose files were changed, by step."""


@dataclass(frozen=True)
class Outcome:
    """One corruption: what kind it was, whether it was named, and what was said, or what went wrong."""

    kind: str
    named: bool
    said: str


@dataclass(frozen=True)
class Case:
    """Where a corruption is made: a copy of a run's checkpoints, those of another run, and the stream of chance."""

    folder: Path
    other: Path
    random: np.random.Generator

    def file(self, step: int, rank: int) -> Path:
        """A rank's file of a step."""
        return step_folder(self.folder, step) / file_name(rank, SIZE)

    def one(self) -> tuple[int, int, Path]:
        """Step, rank and path of any file."""
        step, rank = int(self.random.choice(STEPS)), int(self.random.integers(SIZE))
        return step, rank, self.file(step, rank)

    def two(self, of: Any) -> tuple[int, int]:
        """Two different ones, in any order."""
        first, second = self.random.choice(of, 2, replace=False)
        return int(first), int(second)


# ---- what may happen to files ----


def flip(case: Case, below: int | None = None) -> Hit:
    """Change one byte, of the first `below` or anywhere."""
    step, rank, path = case.one()
    content = bytearray(path.read_bytes())
    content[case.random.integers(below or len(content))] ^= int(case.random.integers(1, 256))
    path.write_bytes(content)
    return {step: {rank}}


def flip_in_header(case: Case) -> Hit:
    """Change one byte of the first 400: length, checksums, whose it is."""
    return flip(case, 400)


def zero(case: Case) -> Hit:
    """Zero up to 512 bytes, as a lost sector does."""
    step, rank, path = case.one()
    content = path.read_bytes()
    while True:
        start = int(case.random.integers(len(content)))
        block = content[start : start + int(case.random.integers(1, 513))]
        if any(block):
            path.write_bytes(content[:start] + bytes(len(block)) + content[start + len(block) :])
            return {step: {rank}}


def truncate(case: Case) -> Hit:
    """Cut the end off, from one byte to all of them."""
    step, rank, path = case.one()
    os.truncate(path, int(case.random.integers(path.stat().st_size)))
    return {step: {rank}}


def extend(case: Case) -> Hit:
    """Append up to 100 bytes."""
    step, rank, path = case.one()
    with path.open("ab") as file:
        file.write(case.random.bytes(int(case.random.integers(1, 101))))
    return {step: {rank}}


def remove(case: Case) -> Hit:
    """Delete a file."""
    step, rank, path = case.one()
    path.unlink()
    return {step: {rank}}


def swap(first: Path, second: Path) -> None:
    """Give each of two files the other's name."""
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def swap_ranks(case: Case) -> Hit:
    """Swap the files of two ranks of a checkpoint."""
    (step, _, _), (first, second) = case.one(), case.two(SIZE)
    swap(case.file(step, first), case.file(step, second))
    return {step: {first, second}}


def swap_steps(case: Case) -> Hit:
    """Swap the files of one rank in two checkpoints."""
    (_, rank, _), (first, second) = case.one(), case.two(STEPS)
    swap(case.file(first, rank), case.file(second, rank))
    return {first: {rank}, second: {rank}}


def swap_steps_and_ranks(case: Case) -> Hit:
    """Swap files of two ranks in two checkpoints."""
    ranks, (first, second) = case.two(SIZE), case.two(STEPS)
    swap(case.file(first, ranks[0]), case.file(second, ranks[1]))
    return {first: {ranks[0]}, second: {ranks[1]}}


def copy_rank(case: Case) -> Hit:
    """Copy the file of one rank over another's."""
    (step, _, _), (source, rank) = case.one(), case.two(SIZE)
    shutil.copyfile(case.file(step, source), case.file(step, rank))
    return {step: {rank}}


def copy_run(case: Case) -> Hit:
    """Copy the file of the same rank and step of another run over a file."""
    step, rank, path = case.one()
    shutil.copyfile(step_folder(case.other, step) / path.name, path)
    return {step: {rank}}


def link(case: Case) -> Hit:
    """Move a file elsewhere and put a symbolic link in its place."""
    step, rank, path = case.one()
    path.rename(case.folder / "elsewhere")
    path.symlink_to(case.folder / "elsewhere")
    return {step: {rank}}


def pipe(case: Case) -> Hit:
    """Put a pipe in a file's place, at which a plain open waits for ever."""
    step, rank, path = case.one()
    path.unlink()
    os.mkfifo(path)
    return {step: {rank}}


KINDS: dict[str, Callable[[Case], Hit]] = {
    "flipped byte": flip,
    "flipped byte in the header": flip_in_header,
    "zeroed block": zero,
    "truncation": truncate,
    "extension": extend,
    "missing file": remove,
    "swapped between ranks": swap_ranks,
    "swapped between checkpoints": swap_steps,
    "swapped between both": swap_steps_and_ranks,
    "another rank's copy": copy_rank,
    "another run's copy": copy_run,
    "symbolic link": link,
    "pipe": pipe,
}


# ---- whether it is named ----


def corruptions(count: int, seed: int) -> list[Outcome]:
    """Make `count` corruptions, all kinds in turn, and return what came of each."""
    random = seeding.generator(seed, seeding.SHARED, "corruptions")
    with tempfile.TemporaryDirectory() as name:
        good, other, bad = (Path(name) / part for part in ("good", "other", "bad"))
        for path, run in ((good, "first"), (other, "second")):
            save(path, run)
        outcomes = []
        for kind in (list(KINDS) * count)[:count]:
            shutil.copytree(good, bad)
            hit = KINDS[kind](Case(bad, other, random))
            outcomes.append(judged(kind, bad, hit))
            shutil.rmtree(bad)
        return outcomes


def state(run: str, step: int, rank: int) -> dict[str, Any]:
    """What a rank saves: tensors, and a generator with its integers of 128 bits."""
    random = seeding.generator(step, rank, run)
    return {
        "model": {"weight": torch.from_numpy(random.normal(size=(30, 10))), "steps": torch.tensor(step)},
        "momentum": torch.from_numpy(random.normal(size=301).astype(np.float32)),
        "random": random.bit_generator.state,
        "losses": random.normal(size=8).tolist(),
    }


def save(path: Path, run: str) -> None:
    """Write a run's checkpoints, as its ranks do."""
    for rank in range(SIZE):
        folder = Folder(path, rank, SIZE, keep=len(STEPS), run=run)
        for step in STEPS:
            folder.save(step, state(run, step, rank))
        folder.wait()


def judged(kind: str, bad: Path, hit: Hit) -> Outcome:
    """Look at the checkpoints after a corruption, as a user does and as a run that resumes."""
    try:
        problems = {found.step: found.problem for found in steps(bad, full=True)}
        faults = [
            fault for step in STEPS for fault in (unnamed(step, problems, hit), unloaded(bad, step, hit)) if fault
        ]
        said = "; ".join(problem for problem in problems.values() if problem)
    except Exception as error:  # what is counted here is that there are none
        faults, said = [f"{type(error).__name__} without a reason: {error}"], ""
    return Outcome(kind, not faults, "; ".join(faults) or said)


def unnamed(step: int, problems: dict[int, str | None], hit: Hit) -> str:
    """Say what is wrong with what is said of a checkpoint; "" if nothing."""
    problem = problems.get(step, "it is not listed")
    if step not in hit:
        return f"step {step} was not touched, but: {problem}" if problem else ""
    names = [(file_name(rank, SIZE), f"missing is rank {rank}", f"rank {rank} of") for rank in hit[step]]
    if problem and all(any(name in problem for name in alternatives) for alternatives in names):
        return ""
    return f"step {step}, ranks {sorted(hit[step])}: SILENT, said is {problem!r}"


def unloaded(bad: Path, step: int, hit: Hit) -> str:
    """Say what is wrong with what loads of a checkpoint after a look at the headers alone; "" if nothing."""
    (found,) = [found for found in steps(bad) if found.step == step]
    refused = set()
    for rank in range(SIZE):
        try:
            loaded, _ = load(found, rank)
        except CheckpointError:
            refused.add(rank)
            continue
        if not same(loaded, state("first", step, rank)):
            return f"step {step}, rank {rank}: SILENT, another state was loaded"
    if step in hit:
        return "" if hit[step] <= refused else f"step {step}: SILENT, ranks {hit[step] - refused} were loaded"
    return f"step {step} was not touched, but does not load" if refused else ""


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Compare two states bit for bit."""
    (tensors, text), (others, other) = pack(first), pack(copied(second))
    return text == other and all(
        tensor.dtype == others[name].dtype
        and torch.equal(tensor.reshape(-1).view(torch.uint8), others[name].reshape(-1).view(torch.uint8))
        for name, tensor in tensors.items()
    )


def main() -> None:
    """Print the counts by kind; exit code 1 if a corruption was not named."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--count", type=int, default=200, help="default: 200")
    flags.add_argument("--seed", type=int, default=0, help="default: 0")
    settings = flags.parse_args()
    if settings.count < 1 or settings.seed < 0:
        flags.error(f"--count must be at least 1 and --seed at least 0, got {settings.count} and {settings.seed}")
    harness.one_thread()
    outcomes = corruptions(settings.count, settings.seed)
    made, named = (Counter(o.kind for o in outcomes if o.named or every) for every in (True, False))
    for kind, count in made.items():
        print(f"{kind:28} {named[kind]:4d} of {count:4d}")
    for outcome in outcomes:
        if not outcome.named:
            print(f"NOT NAMED: {outcome.kind}: {outcome.said}")
    print(f"{named.total()} of {made.total()} named")
    sys.exit(int(named.total() != made.total()))


if __name__ == "__main__":
    main()
