"""The copy of a state that is made while training waits; what is checked, written and pruned later works on the copy."""

from collections import OrderedDict
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from ..errors import CheckpointError

State = dict[str, Any]
"""Dicts with str or int keys, lists and tuples of tensors, arrays and scalars of NumPy, int, float, str, bytes, bool, None."""

DEPTH = 100
"""Dicts, lists and tuples within each other: more is taken for a state that holds itself."""


def copied(state: State) -> State:
    """Return a copy that shares no memory with `state`: tensors without history, in the same order of memory.

    Errors: CheckpointError for what no file could hold, by its place in the state.
    """
    if type(state) not in (dict, OrderedDict):
        refuse(state, "state")
    copy: State = _copied(state, "state", 0)
    return copy


def _copied(value: Any, place: str, depth: int) -> Any:
    kind = type(value)
    if kind in (dict, OrderedDict):
        check_depth(place, depth)
        return {check_key(key, place): _copied(item, f"{place}[{key!r}]", depth + 1) for key, item in value.items()}
    if kind in (list, tuple):
        check_depth(place, depth)
        return kind(_copied(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value))
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if kind in (np.ndarray, np.memmap):
        return np.array(value, order="K")
    if kind in (int, float, str, bytes, bool, type(None)) or isinstance(value, np.generic):
        return value
    return refuse(value, place)


def check_key(key: Any, place: str) -> Any:
    """Return a dict's key if it is a str or an int and nothing derived from them; else CheckpointError."""
    if type(key) not in (str, int):
        refuse(key, f"a key of {place}")
    return key


def check_depth(place: str, depth: int) -> None:
    """Raise CheckpointError where things lie in each other without end."""
    if depth >= DEPTH:
        raise CheckpointError(
            f"{place[:200]}…: more than {DEPTH} dicts, lists and tuples lie in each other, or one in itself"
        )


def refuse(value: Any, place: str) -> NoReturn:
    """Raise the CheckpointError for what a file can't hold."""
    kind = type(value)
    raise CheckpointError(
        f"{place} is a {kind.__module__}.{kind.__qualname__}: wanted a dict with str or int keys, a list, a tuple, a tensor, a "
        f"NumPy array or scalar, int, float, str, bytes, bool or None; save its parts as one of these"
    )
