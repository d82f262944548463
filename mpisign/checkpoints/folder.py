"""One rank's hand on the folder of checkpoints: saving without stopping for the disk, and deleting what is superfluous."""

import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import CheckpointError
from .copying import State, copied
from .found import steps
from .names import PART, file_name, step_folder, step_of, whose
from .packing import pack
from .safe_file import Label
from .writing import sync, write

ATTEMPTS = 10
"""Times that a step's folder is made again after another rank found it empty and removed it."""


class Folder:
    """The checkpoints of a run, as one of its `size` ranks writes them; no rank asks another.

    A checkpoint is complete when all `size` files of its step are there. Each rank deletes its own old files, and those
    that a run of another size left: it takes ranks equal to its own modulo `size`. What a killed writer left half-written is
    deleted at construction, so at any time only one Folder of a rank may be in use.

    Args:
        path: the folder; made at the first save.
        rank: 0 to size − 1.
        size: number of ranks.
        keep: how many complete checkpoints stay, at least 1. One more is there while ranks write.
        run: an id that the ranks of this start of the program share and no other has: files of two runs in one
            checkpoint are told apart by it.

    Errors: ValueError for numbers out of range.
    """

    def __init__(self, path: Path, rank: int, size: int, keep: int = 2, run: str = "") -> None:
        if not 0 <= rank < size or keep < 1:
            raise ValueError(f"wanted 0 <= rank < size and keep >= 1, got rank {rank}, size {size}, keep {keep}")
        self.path, self.rank, self.size, self.keep, self.run = Path(path), rank, size, keep, run
        self._writer: threading.Thread | None = None
        self._failure: Exception | None = None
        self._clean()

    def save(self, step: int, state: State, details: Mapping[str, str] | None = None) -> None:
        """Copy the state and return; a thread writes it, after the save before is on disk, and then prunes.

        Args:
            step: >= 0; a file of the same step and size is replaced.
            state: see `State`.
            details: more about it, kept beside the state and readable without it.

        Errors: CheckpointError if the save before failed, and then nothing is saved; or for a state that no file can hold.
        """
        self.wait()
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}")
        wanted = dict(details or {})
        if not all(type(text) is str for item in wanted.items() for text in item):
            raise CheckpointError(f"details of a checkpoint must be text by name, got {wanted!r}")
        label = Label(self.run, step, self.rank, self.size, time.time_ns())
        self._writer = threading.Thread(
            target=self._write, args=(label, copied(state), wanted), name=f"checkpoint of rank {self.rank}"
        )
        self._writer.start()

    def wait(self) -> None:
        """Return when what was saved is on disk; raise, once, the CheckpointError of a write that failed."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def prune(self) -> None:
        """Delete this rank's files of steps before the `keep` newest complete checkpoints of this run.

        Each save does so when it is written; that of the last rank to write completes a checkpoint, so a rank that was
        faster keeps one file more until the next save, or until this is called when all have written.
        Errors: CheckpointError for a file that can't be deleted.
        """
        own = list(self._files())
        if len({step for step, _ in own}) <= self.keep:
            return
        complete = [
            found.step
            for found in steps(self.path)
            if (found.problem, found.run, found.size) == (None, self.run, self.size)
        ]
        for step, file in own:
            if len(complete) >= self.keep and step < complete[self.keep - 1]:
                try:
                    _delete(file)
                except OSError as error:
                    raise CheckpointError(f"{file}: can't be deleted ({error.strerror})") from error

    def _write(self, label: Label, state: State, details: Mapping[str, str]) -> None:
        """The thread's work; what goes wrong is kept for `wait`."""
        file = step_folder(self.path, label.step) / file_name(self.rank, self.size)
        try:
            tensors, text = pack(state)
            for attempt in range(ATTEMPTS):
                self._make(file.parent)
                try:
                    write(file, label, tensors, text, details)
                    break
                except FileNotFoundError:
                    if attempt == ATTEMPTS - 1:
                        raise
            self.prune()
        except OSError as error:
            self._failure = CheckpointError(
                f"{file}: can't be written ({error.strerror}); checkpoints from before are untouched. "
                f"Make room, or see to the folder's permissions"
            )
            self._failure.__cause__ = error
        except Exception as error:
            self._failure = error

    def _make(self, folder: Path) -> None:
        """Make a step's folder, and bring its name to disk."""
        if folder.is_symlink():
            raise CheckpointError(f"{folder}: is a symbolic link, wanted a folder: delete it")
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync(self.path)
            sync(self.path.parent)

    def _files(self, suffix: str = "") -> Iterator[tuple[int, Path]]:
        """Step and path of each file that this rank has to look after."""
        for folder in _children(self.path):
            step = step_of(folder.name)
            for file in _children(folder) if step is not None and not folder.is_symlink() else []:
                owner = whose(file.name.removesuffix(suffix)) if file.name.endswith(suffix) else None
                if step is not None and owner is not None and owner[0] % self.size == self.rank:
                    yield step, file

    def _clean(self) -> None:
        """Delete what was never finished; what can't be deleted is met again by the write that needs its name."""
        for _, file in list(self._files(PART)):
            with suppress(OSError):
                _delete(file)


def clear(path: Path) -> None:
    """Delete all checkpoints in a folder. Errors: OSError for one that can't be deleted."""
    for folder in _children(path):
        if step_of(folder.name) is not None and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)


def _children(folder: Path) -> list[Path]:
    """What is in a folder; nothing in one that isn't there, or is none."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _delete(file: Path) -> None:
    """Delete a file, and its folder if that is empty now; another rank may have been faster with both."""
    file.unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()
