"""A nested state as named tensors and a JSON text: nothing in it can run code, and every bit comes back."""

import base64
import json
import math
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .arrays import as_bytes, has_tensor, scalar_from, shaped, sort_of
from .copying import State, check_depth, check_key, refuse
from .safe_file import DTYPES

EXACT = 2**53
"""Integers below it are JSON numbers, which other readers may hold as floats; larger ones are hexadecimal strings."""

Node = Any
"""JSON: null, true, false, numbers, strings and lists stand for themselves; all else is {kind: content}, one entry."""


def pack(state: State) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a state by name, in row-major order on the CPU, and the rest as JSON.

    Names are paths ("optimizer/state/0/momentum"). Tensors may share memory with the state. NumPy arrays are tensors too,
    those of dtypes that safetensors lacks as bytes. A tensor that lies dense in another order of its axes gets that order
    back; an OrderedDict comes back as dict, a parameter as plain tensor.
    Errors: CheckpointError for what can't be packed, by its place.
    """
    if type(state) not in (dict, OrderedDict):
        refuse(state, "state")
    packing = _Packing()
    return packing.tensors, json.dumps({"mpisign": 1, "state": packing.node(state, (), 0)}, separators=(",", ":"))


def unpack(tensors: dict[str, Tensor], text: str) -> State:
    """Return the state that `pack` was given, bit for bit; tensors may share memory with those given.

    Errors: CheckpointError where the text isn't one of `pack`'s, or tensors are missing or left over.
    """
    unpacking = _Unpacking(tensors)
    try:
        content = json.loads(text)
        if type(content) is not dict or set(content) != {"mpisign", "state"} or content["mpisign"] != 1:
            raise ValueError("wanted an object of mpisign, which is 1, and state")
        state = unpacking.value(content["state"])
    except (ValueError, TypeError, LookupError, RuntimeError, OverflowError, struct.error) as error:
        # a text that isn't ours can raise almost anything; RecursionError is a RuntimeError
        raise CheckpointError(
            f"the state is none that mpisign packed ({type(error).__name__}: {str(error)[:300]})"
        ) from error
    if type(state) is not dict or unpacking.left:
        left = ", ".join(sorted(unpacking.left)[:3])[:300]
        raise CheckpointError(
            f"the state is none that mpisign packed ({f'unused tensors: {left}' if left else 'no dict'})"
        )
    return state


class _Packing:
    """Collects tensors while it turns values into nodes."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def node(self, value: Any, path: tuple[str | int, ...], depth: int) -> Node:
        """The JSON of a value at `path`."""
        kind = type(value)
        if kind in (dict, OrderedDict, list, tuple):
            check_depth(_place(path), depth)
        if kind in (dict, OrderedDict):
            return {"dict": [[self.key(key, path), self.node(value[key], (*path, key), depth + 1)] for key in value]}
        if kind in (list, tuple):
            nodes = [self.node(item, (*path, index), depth + 1) for index, item in enumerate(value)]
            return nodes if kind is list else {"tuple": nodes}
        if isinstance(value, Tensor):
            return {"tensor": self.tensor(value, path)}
        if kind in (np.ndarray, np.memmap):
            return {"array": self.array(np.array(value, order="K"), path)}
        if isinstance(value, np.generic):
            return {"scalar": [self.sort(value.dtype, path), value.tobytes().hex()]}
        if kind is int and abs(value) >= EXACT:
            return {"int": hex(value)}
        if kind is float and not math.isfinite(value):
            return {"float": struct.pack("<d", value).hex()}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode("ascii")}
        if kind in (int, float, str, bool, type(None)):
            return value
        return refuse(value, _place(path))

    def key(self, key: Any, path: tuple[str | int, ...]) -> Node:
        """The JSON of a dict's key."""
        return self.node(check_key(key, _place(path)), path, 0)

    def tensor(self, value: Tensor, path: tuple[str | int, ...]) -> Node:
        """[name], or [name, the axes from the slowest to the fastest]."""
        if value.layout != torch.strided or value.dtype not in DTYPES.values() or value.device.type == "meta":
            raise CheckpointError(
                f"{_place(path)} is a tensor of {value.dtype}, {value.layout}, on {value.device}: wanted a dense one of "
                f"{', '.join(str(dtype).removeprefix('torch.') for dtype in DTYPES.values())}"
            )
        name = self.name(path)
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        self.tensors[name] = plain.contiguous()
        strides = plain.stride()
        axes = sorted(range(plain.ndim), key=lambda axis: -strides[axis])
        reordered = not plain.is_contiguous() and plain.permute(axes).is_contiguous()
        return [name, axes] if reordered else [name]

    def array(self, value: np.ndarray, path: tuple[str | int, ...]) -> Node:
        """[dtype, tensor], or [dtype, tensor of bytes, shape]."""
        sort = self.sort(value.dtype, path)
        if has_tensor(value.dtype):
            return [sort, self.tensor(torch.from_numpy(value), path)]
        return [sort, self.tensor(torch.from_numpy(as_bytes(value)), path), list(value.shape)]

    def sort(self, dtype: "np.dtype[Any]", path: tuple[str | int, ...]) -> str:
        """The dtype as text."""
        try:
            return sort_of(dtype)
        except ValueError as error:
            raise CheckpointError(f"{_place(path)}: {error}") from error

    def name(self, path: tuple[str | int, ...]) -> str:
        """A name that no other tensor has; "__metadata__" is no tensor's in a safetensors file."""
        plain = "/".join(map(str, path)).encode("utf-8", "replace").decode()
        name, count = plain, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{plain}~{count}"
        return name


class _Unpacking:
    """Turns nodes into values, and takes each tensor once."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.left = dict(tensors)
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "dict": lambda content: {check_key(self.value(key), "state"): self.value(node) for key, node in content},
            "tuple": lambda content: tuple(map(self.value, content)),
            "tensor": lambda content: self.tensor(*content),
            "array": lambda content: self.array(*content),
            "scalar": lambda content: scalar_from(*content),
            "int": lambda content: int(content, 16),
            "float": lambda content: struct.unpack("<d", bytes.fromhex(content))[0],
            "bytes": lambda content: base64.b64decode(content, validate=True),
        }

    def value(self, node: Node) -> Any:
        """The value of a node."""
        if type(node) is list:
            return [self.value(item) for item in node]
        if type(node) is not dict:
            return node
        ((kind, content),) = node.items()
        return self._kinds[kind](content)

    def tensor(self, name: str, axes: list[int] | None = None) -> Tensor:
        """The tensor of a name, its axes laid out as they were."""
        tensor = self.left.pop(name)
        if axes is None:
            return tensor
        inverse = sorted(range(len(axes)), key=axes.__getitem__)
        return tensor.permute(axes).contiguous().permute(inverse)

    def array(self, sort: str, tensor: Node, shape: list[int] | None = None) -> np.ndarray:
        """The array of a dtype."""
        return shaped(self.tensor(*tensor).numpy(), sort, shape)


def _place(path: tuple[str | int, ...]) -> str:
    return "state" + "".join(f"[{part!r}]" for part in path)
