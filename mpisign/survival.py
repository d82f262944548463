"""What a run needs to outlive its ranks: moments at which all agree, and a memory of states that all have been in."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .checkpoints import copied, from_block, to_block
from .comm import Comm

State = dict[str, Any]

_NEW = 1 << 62  # in place of the last agreement that a rank remembers that remembers nothing, but need not

PERIOD = 1.0
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
    """Copies of this rank's last two states: of two agreements, since others may have been in the one before.

    Args:
        is_new: whether this rank has come in the place of one that died, and remembers nothing yet.
    """

    def __init__(self, is_new: bool = False) -> None:
        self._states: dict[int, State] = {}  # by the number of the agreement
        self._is_new = is_new

    def keep(self, state: State) -> None:
        """Remember a state, and forget the last but one; at an agreement, on all ranks."""
        last = max(self._states, default=0)
        self._states = {**({last: self._states[last]} if last else {}), last + 1: copied(state)}

    def common(self, comm: Comm, inherited: Callable[[State], State] = lambda state: state) -> State | None:
        """Return this rank's state at the last agreement that all of these ranks remember; collective. None: there is none.

        It is what this rank remembers from here on. One that is new gets another's, without what was that one's own, and
        with what has been `inherited` from its predecessor.
        """
        latest = _NEW if self._is_new else max(self._states, default=-1)
        known = torch.tensor([latest, comm.size if self._is_new else comm.rank, -int(self._is_new)])
        number, source, news = comm.allreduce(known, "min").tolist()
        state = None
        if 0 <= number < _NEW:
            state = self._states.get(number)
            if news:
                told = self._told(comm, state, source)
                state = self._with_newcomers(comm, inherited(told) if state is None else state)
        self._states = {} if state is None else {number: state}
        self._is_new = False
        return state

    def _told(self, comm: Comm, state: State | None, source: int) -> State:
        """Let `source` tell what a newcomer needs of its state."""
        block = torch.empty(0, dtype=torch.uint8)
        if state is not None and comm.rank == source:
            block = to_block(for_newcomer(state))
        length = int(comm.bcast(torch.tensor([len(block)]), source))
        return from_block(comm.bcast(block if len(block) else torch.empty(length, dtype=torch.uint8), source))

    def _with_newcomers(self, comm: Comm, state: State) -> State:
        """Let a state be one in which the newcomers' predecessors were not."""
        is_new = comm.allgather(torch.tensor([int(self._is_new)])).view(-1).tolist()
        new = {comm.members[rank] for rank, one in enumerate(is_new) if one}
        return state | {"members": [-1 if member in new else member for member in state["members"]]}


def for_newcomer(state: State) -> State:
    """Return what a rank goes on from that has no state of its own: another's model, schedule and place in the run."""
    own = {"worker": -1, "attack": {}, "counts": {}, "own": {}, "phases": {}}
    return state | own | {"optimizer": shared_part(state["optimizer"], state["shared"])}


def with_momentum(state: State, saved: State) -> State:
    """Return a newcomer's state with what its predecessor had saved of its own: momentum and residual, no model."""
    optimizer, old = state["optimizer"], saved["optimizer"]["state"]
    told = optimizer["state"]
    states = {index: old.get(index, {}) | told.get(index, {}) for index in {*old, *told}}
    return state | {"optimizer": optimizer | {"state": states}}


def shared_part(optimizer: State, names: Iterable[str]) -> State:
    """Return an optimizer's state with nothing of each parameter's but these, which are the model's."""
    states = {index: {name: kept[name] for name in names if name in kept} for index, kept in optimizer["state"].items()}
    return optimizer | {"state": states}
