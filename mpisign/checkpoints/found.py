"""The checkpoints that are there, and why some can't be used; reading one rank's part of one."""

import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..errors import CheckpointError
from .copying import State
from .names import PART, file_name, step_of, whose
from .packing import unpack
from .reading import read, read_header, verify
from .safe_file import Label, refuse

SHOWN = 4
"""Ranks, runs or damaged files that are listed one by one."""


@dataclass(frozen=True)
class Found:
    """One checkpoint: all files of one step and one number of ranks.

    Attributes:
        step: number of steps taken.
        size: number of ranks; 0 where no file of a rank is there.
        folder: where its files lie.
        problem: why it can't be used; None for one that can.
        run: the id of the run that wrote it, "" where unknown.
        saved: when, in nanoseconds since 1970, the last of its ranks saved.
    """

    step: int
    size: int
    folder: Path
    problem: str | None
    run: str = ""
    saved: int = 0


def steps(path: Path, full: bool = False) -> list[Found]:
    """Return what is in a folder of checkpoints, newest first: the highest step, and of two sizes the one saved later.

    By default headers are read and checked (who wrote which step of which run, lengths of all), not the tensors' bytes;
    `load` checks those of the file that it reads, `full` those of all files.
    Errors: CheckpointError where the folder can't be listed. One that doesn't exist has no checkpoints.
    """
    try:
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        refuse(path, f"can't be listed ({error.strerror})", error)
    found = [
        one for name in entries if (step := step_of(name)) is not None for one in _in_folder(path / name, step, full)
    ]
    return sorted(found, key=lambda one: (one.step, one.saved, one.size), reverse=True)


def load(found: Found, rank: int) -> tuple[State, dict[str, str]]:
    """Return what `rank` saved: the state, bit for bit, and the details. Reads and checks all of that rank's file.

    Errors: CheckpointError names the file and what is wrong with it.
    """
    if found.problem is not None:
        raise CheckpointError(f"the checkpoint of step {found.step} can't be used: {found.problem}")
    if not 0 <= rank < found.size:
        raise CheckpointError(f"{found.folder} holds ranks 0 to {found.size - 1}: there is no rank {rank} to load")
    path = found.folder / file_name(rank, found.size)
    header, tensors = read(path)
    _check_label(path, header.label, found.step)
    if header.label.run != found.run:
        refuse(path, f"is of run {header.label.run!r}, the others of {found.run!r}: it was swapped")
    try:
        return unpack(tensors, header.state), header.details
    except CheckpointError as error:
        refuse(path, str(error), error)


def _in_folder(folder: Path, step: int, full: bool) -> list[Found]:
    """What is in a step's folder: a checkpoint for each number of ranks."""
    if folder.is_symlink():
        return [Found(step, 0, folder, f"{folder}: is a symbolic link, wanted a folder")]
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []  # pruned meanwhile
    except OSError as error:
        return [Found(step, 0, folder, f"{folder}: can't be listed ({error.strerror})")]
    ranks = defaultdict[int, list[int]](list)  # by size
    for rank, size in filter(None, map(whose, names)):
        ranks[size].append(rank)
    if not ranks:
        half = sum(whose(name.removesuffix(PART)) is not None for name in names)
        return [Found(step, 0, folder, f"{folder}: no rank's file is there, and {half} half-written")]
    return [_inspected(folder, step, size, there, full) for size, there in ranks.items()]


def _inspected(folder: Path, step: int, size: int, ranks: list[int], full: bool) -> Found:
    problems, labels = list[str](), list[Label]()
    missing = list(islice((rank for rank in range(size) if rank not in set(ranks)), SHOWN))
    if missing:
        more = ", …" if size - len(ranks) > len(missing) else ""
        problems.append(f"{folder}: {len(ranks)} of {size} files are there, missing is rank {_listed(missing)}{more}")
    for rank in ranks:
        path = folder / file_name(rank, size)
        try:
            label = (verify(path) if full else read_header(path)).label
            _check_label(path, label, step)
            labels.append(label)
        except CheckpointError as error:
            problems.append(str(error))
    runs = defaultdict[str, list[int]](list)
    for label in labels:
        runs[label.run].append(label.rank)
    if len(runs) > 1:
        several = [f"rank {_listed(ranks[:SHOWN])} of {run!r}" for run, ranks in islice(runs.items(), SHOWN)]
        problems.append(f"{folder}: files of different runs, {'; '.join(several)}: some were swapped or written over")
    shown = "; ".join(problems[:SHOWN]) + (f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else "")
    run = next(iter(runs)) if len(runs) == 1 else ""
    return Found(step, size, folder, shown or None, run, max((label.saved for label in labels), default=0))


def _check_label(path: Path, label: Label, step: int) -> None:
    """Compare what a file says of itself with where it lies."""
    rank, size = whose(path.name) or (-1, 0)
    if (label.rank, label.size, label.step) != (rank, size, step):
        refuse(
            path,
            f"holds rank {label.rank} of {label.size} at step {label.step}, where rank {rank} of {size} at step {step} "
            f"should be: it was swapped or renamed",
        )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
