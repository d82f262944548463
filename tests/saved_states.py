"""States to save, and their comparison to the last bit, type and dtype."""

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor


def same(first: Any, second: Any) -> bool:
    """Tell whether two states are equal: types, order of keys, dtypes, shapes, strides of dense tensors, and each bit."""
    if isinstance(first, Tensor):
        return (
            type(second) is Tensor
            and (first.dtype, first.shape) == (second.dtype, second.shape)
            and (not dense(first) or layout(first) == layout(second))
            and raw(first) == raw(second)
        )
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        keys = zip(first, second, strict=True) if len(first) == len(second) else [(0, "")]
        return all(type(a) is type(b) and a == b and same(first[a], second[b]) for a, b in keys)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, np.ndarray | np.generic):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    if isinstance(first, float):
        return struct.pack("d", first) == struct.pack("d", second)
    return bool(first == second)


def raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor in row-major order."""
    flat = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy().tobytes()


def layout(tensor: Tensor) -> list[int]:
    """The strides that mean something."""
    lengths = zip(tensor.shape, tensor.stride(), strict=True) if tensor.numel() else []
    return [stride for length, stride in lengths if length > 1]


def dense(tensor: Tensor) -> bool:
    """Tell whether a tensor fills its memory without gaps, in whatever order of its axes."""
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.ndim), key=lambda axis: -strides[axis])).is_contiguous()


def plain_state(rank: int = 0, step: int = 0) -> dict[str, Any]:
    """A state with something of each kind, of this rank's and step's own."""
    random = np.random.default_rng([rank, step])
    return {
        "model": {"weight": torch.from_numpy(random.normal(size=(5, 3))).float(), "empty": torch.zeros(0, 2)},
        "state": {0: {"momentum": torch.from_numpy(random.normal(size=70)).bfloat16()}, "0": "a string's"},
        "random": random.bit_generator.state,  # integers of 128 bits
        "order": random.permutation(9),
        "where": (step, rank, 0.1 * step, None, True, b"\0\xff", "ümläut"),
    }
