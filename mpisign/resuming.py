"""A run's checkpoints: when they are written, and from which a run goes on."""

import os
import sys
import time
import tomllib
from functools import partial
from typing import Any

import torch

from .checkpoints import Folder, Found, load, steps
from .comm import Comm
from .config import FIELDS, FREE_ON_RESUME, Config
from .errors import CheckpointError, ConfigError
from .options import to_toml
from .survival import for_newcomer

State = dict[str, Any]


class Archive:
    """The checkpoints of one run, in the folder `checkpoints` of its --output; none where there is no output."""

    def __init__(self, config: Config) -> None:
        self._config, run = config, config.run
        self._path = run.output / "checkpoints" if run.output else None
        self._every, self._keep, self._resume = run.checkpoint_every, run.checkpoints_kept, run.resume
        self._folders: dict[int, Folder] = {}  # by rank: one's own, and on rank 0 those of ranks that were away
        self._run = ""

    @property
    def writes(self) -> bool:
        """Whether there is a folder for checkpoints."""
        return self._path is not None

    def is_due(self, step: int) -> bool:
        """Tell whether a checkpoint is to be written after this step."""
        return self.writes and self._every is not None and step % self._every == 0

    def save(self, comm: Comm, step: int, state: State, rank: int | None = None) -> None:
        """Copy the state of this rank, or of one that is away, and let it be written while training goes on."""
        assert self._path is not None  # `writes`
        whose = comm.rank if rank is None else rank
        if whose not in self._folders:
            self._folders[whose] = Folder(self._path, whose, comm.size, self._keep, self._run)
        self._folders[whose].save(step, state, {"config": to_toml(self._config)})

    def close(self) -> None:
        """Wait until what was saved is on disk."""
        for folder in self._folders.values():
            folder.wait()

    def open(self, comm: Comm) -> None:
        """Write for these ranks from here on; collective."""
        run = int(comm.bcast(torch.tensor([time.time_ns() ^ os.getpid()])))
        self.close()
        self._folders, self._run = {}, f"{run:x}"

    def newest(self, comm: Comm) -> State | None:
        """Return this rank's part of the newest checkpoint that is whole, None where there is none; collective.

        A checkpoint that can't be used is named on rank 0's standard error, and the one before it is tried.

        Raises:
            ConfigError: the checkpoint is of a run that this one can't continue.
        """
        if self._resume is None or self._path is None:
            return None
        unusable: set[int] = set()
        while True:
            number, step, size = self._offer(comm, unusable)
            if number < 0:
                return None
            try:
                return comm.together(partial(self._load, comm, step, size), CheckpointError)
            except CheckpointError as error:
                if comm.rank == 0:
                    print(f"mpisign: {error}; trying the one before", file=sys.stderr, flush=True)
                unusable.add(number)

    def predecessors(self, comm: Comm) -> State | None:
        """Return what the one that had this rank's place has saved in the newest checkpoint that is whole; None: nothing.

        Not collective; what can't be used is named on standard error.
        """
        for found in steps(self._path) if self._path else []:
            if found.problem is None and found.size == comm.size:
                try:
                    return self._read(found, comm.rank)
                except (CheckpointError, ConfigError) as error:
                    print(f"mpisign, rank {comm.rank}: {error}; trying the one before", file=sys.stderr, flush=True)
        return None

    def _offer(self, comm: Comm, unusable: set[int]) -> tuple[int, int, int]:
        """Number, step and size of the newest checkpoint that may do, as rank 0 sees it; −1 for none."""
        offer = torch.tensor([-1, -1, -1])

        def look() -> None:
            assert self._path is not None
            for number, found in enumerate(steps(self._path)):
                if number in unusable:
                    continue
                if found.problem is None:
                    offer[:] = torch.tensor([number, found.step, found.size])
                    return
                print(f"mpisign: checkpoint of step {found.step}: {found.problem}", file=sys.stderr, flush=True)
                unusable.add(number)

        comm.together(lambda: look() if comm.rank == 0 else None, CheckpointError)
        number, step, size = comm.bcast(offer).tolist()
        return number, step, size

    def _read(self, found: Found, rank: int) -> State:
        """Return what a rank has saved, if it is of a run that this one can continue."""
        state, details = load(found, rank)
        check_fits(self._config, details.get("config", ""))
        return state

    def _load(self, comm: Comm, step: int, size: int) -> State:
        """Return what this rank saved; a rank that was not there takes another's model, without its momentum."""
        assert self._path is not None
        same = [found for found in steps(self._path) if (found.step, found.size, found.problem) == (step, size, None)]
        if not same:
            raise CheckpointError(
                f"{self._path}: rank {comm.rank} doesn't see the checkpoint of step {step} that rank 0 sees"
            )
        state = self._read(same[0], comm.rank % size)
        return for_newcomer(state) if comm.rank >= size else state


def check_fits(config: Config, saved: str) -> None:
    """Raise ConfigError where a run's settings, as TOML text, differ from `config` in what can't change on the way."""
    then, now = tomllib.loads(saved), tomllib.loads(to_toml(config))
    for section, values in now.items():
        for name in sorted({*values, *then.get(section, {})} - FREE_ON_RESUME):
            before, after = then.get(section, {}).get(name), values.get(name)
            if before != after:
                flag = FIELDS[name].metadata["flag"]
                raise ConfigError(
                    f"--resume: the checkpoint is of a run with {flag} {before}, this one has {after}: continue with the "
                    f"same, or start anew in another --output"
                )
