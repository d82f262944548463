"""NumPy's arrays and scalars as bytes with a dtype in words, for those that safetensors lacks (complex128, >f4, datetime64)."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

SORT = re.compile(r"[<>|][biufcmM][0-9]{1,2}(\[[0-9A-Za-z]{1,16}\])?")
"""A dtype of numbers or times: no objects, no text, no records."""


def sort_of(dtype: "np.dtype[Any]") -> str:
    """Return a dtype in NumPy's words ("<f4"); ValueError for one that isn't of numbers or times."""
    if dtype.kind not in "biufcmM" or not SORT.fullmatch(dtype.str):
        raise ValueError(f"NumPy's {dtype} can't be saved: wanted booleans, integers, floats, complex numbers or times")
    return dtype.str


def has_tensor(dtype: "np.dtype[Any]") -> bool:
    """Tell whether torch and safetensors have the dtype too."""
    return dtype.isnative and dtype.str[1:] in {
        *("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8"),
    }


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array in row-major order, uint8[nbytes], as a copy."""
    return np.frombuffer(bytearray(array.tobytes()), dtype=np.uint8)


def shaped(array: NDArray[Any], sort: str, shape: list[int] | None) -> NDArray[Any]:
    """Return the array of dtype `sort`: given as such, or as bytes and a shape; ValueError where it can't be."""
    dtype = _dtype(sort)
    if shape is not None:
        return array.view(dtype).reshape(shape)
    if array.dtype != dtype:
        raise ValueError(f"an array of {dtype} is kept as {array.dtype}")
    return array


def scalar_from(sort: str, digits: str) -> Any:
    """Return NumPy's scalar of dtype `sort` from its bytes in hexadecimal; ValueError where it can't be."""
    (scalar,) = np.frombuffer(bytes.fromhex(digits), dtype=_dtype(sort))
    return scalar


def _dtype(sort: str) -> "np.dtype[Any]":
    if not SORT.fullmatch(sort):
        raise ValueError(f"{sort[:40]!r} is no dtype of numbers or times")
    return np.dtype(sort)
