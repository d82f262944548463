"""What a run needs to outlive its ranks: moments at which all agree, and a memory of states that all have been in."""

import time
from typing import Any

import torch

from .checkpoints import copied
from .comm import Comm

State = dict[str, Any]

PERIOD = 0.25
"""Seconds from one agreement to the next, about."""

SHARE = 0.01
"""What agreements, and the copies that are made at them, may take of a run's time."""


class Rounds:
    """Moments at which all ranks agree on what none may do alone: after the same steps, about every PERIOD seconds.

    Where what is done at each of them takes long, they are fewer, so that it takes SHARE of the time.
    """

    def __init__(self, comm: Comm, step: int) -> None:
        self._comm, self._last, self._next = comm, step, step + 1
        self._cost, self._ended = 0.0, time.perf_counter()

    def are_due(self, step: int) -> bool:
        """Tell, on all ranks alike, whether to agree after this step."""
        return step >= self._next

    def agree(self, step: int, wish: int) -> int:
        """Return the largest wish of all ranks; collective."""
        mine = (time.perf_counter() - self._ended) / max(step - self._last, 1)
        numbers = torch.tensor([wish, int(1e9 * mine), int(1e9 * self._cost)], dtype=torch.int64)
        largest, a_step, cost = self._comm.allreduce(numbers, "max").tolist()
        self._last, self._next = step, step + max(1, int(max(1e9 * PERIOD, cost / SHARE) / max(a_step, 1)))
        self._began = time.perf_counter()
        return int(largest)

    def state(self) -> list[int]:
        """Return when ranks agree next, and when they last did: the same on all."""
        return [self._next, self._last]

    def restore(self, state: list[int]) -> None:
        """Take up what `state` gave on another rank."""
        self._next, self._last = state

    def done(self) -> None:
        """Say that what was to be done at this moment is done."""
        self._ended = time.perf_counter()
        self._cost = self._ended - self._began


class Memory:
    """Copies of this rank's last two states: of the steps of two agreements, since others may have been in the one before."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}

    def keep(self, step: int, state: State) -> None:
        """Remember a state, and forget the last but one."""
        self._states = {**dict(sorted(self._states.items())[-1:]), step: copied(state)}

    def common(self, comm: Comm) -> State | None:
        """Return this rank's state after the last step that all of these ranks remember; collective. None: there is none."""
        latest = max(self._states, default=-1)
        step = int(comm.allreduce(torch.tensor([latest]), "min"))
        self._states = {step: self._states[step]} if step >= 0 else {}
        return self._states.get(step)
