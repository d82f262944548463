"""Names of checkpoints: step-00000120/rank-0003-of-0006.safetensors, and .part behind it while a file is being written."""

import re
from pathlib import Path

PART = ".part"
_STEP = re.compile(r"step-([0-9]{8,18})")
_FILE = re.compile(r"rank-([0-9]{4,9})-of-([0-9]{4,9})\.safetensors")


def step_folder(path: Path, step: int) -> Path:
    """Return the folder of a step among the checkpoints at `path`."""
    return path / f"step-{step:08d}"


def file_name(rank: int, size: int) -> str:
    """Return the name of the file of a rank of `size`.

    >>> file_name(3, 6), whose(file_name(3, 6)), whose("rank-0006-of-0006.safetensors")
    ('rank-0003-of-0006.safetensors', (3, 6), None)
    """
    return f"rank-{rank:04d}-of-{size:04d}.safetensors"


def step_of(name: str) -> int | None:
    """Return the step that a folder's name says, None for the name of something else."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match and step_folder(Path(), int(match[1])).name == name else None


def whose(name: str) -> tuple[int, int] | None:
    """Return the rank and size that a file's name says, None for the name of something else."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    rank, size = int(match[1]), int(match[2])
    return (rank, size) if rank < size and file_name(rank, size) == name else None
