"""One file: safetensors, whose header also holds whose it is and two checksums that cover each of its bytes.

    8 bytes  length of the header, little-endian; a multiple of 8
    header   {"__metadata__":{"format":"mpisign checkpoint 1","header":"…","data":"…","run":…},"name":{"dtype":…},…}, spaces
    data     tensors one after another, row-major and little-endian, larger elements first

"data" is BLAKE2b of the data, "header" that of length and header with zeros in its own place. So a header can be judged
alone, and file and checksum can't part. Written and read here rather than by the safetensors library: checksums are taken
on the way, the interpreter isn't held meanwhile, and a file that gets shorter while it is read ends no process (no mmap).
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from ..errors import CheckpointError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""What torch and safetensors both have, by safetensors' names."""

LARGEST_HEADER = 100_000_000
"""Bytes; safetensors' own limit."""

CHUNK = 1 << 20
"""Bytes that are hashed and written, or read, at once: they stay in the cache in between."""

_DIGEST = 16
ZEROS = b"0" * 2 * _DIGEST
FORMAT = "mpisign checkpoint 1"
PREFIX = f'{{"__metadata__":{{"format":"{FORMAT}","header":"'.encode()
BETWEEN = b'","data":"'
HEADER_AT = len(PREFIX)
DATA_AT = HEADER_AT + len(ZEROS) + len(BETWEEN)


@dataclass(frozen=True)
class Label:
    """Whose a file is; `saved` in nanoseconds since 1970, by that rank's clock."""

    run: str
    step: int
    rank: int
    size: int
    saved: int


@dataclass(frozen=True)
class Header:
    """What a file's header says; `tensors`: name, dtype, shape and number of bytes, in the order of the data."""

    label: Label
    state: str
    details: dict[str, str]
    tensors: list[tuple[str, torch.dtype, list[int], int]]
    data: str
    """Checksum of the data."""


def checksum(content: bytes | bytearray = b"") -> "hashlib.blake2b":
    """Return the running checksum, of `content` so far."""
    return hashlib.blake2b(content, digest_size=_DIGEST)


def refuse(path: Path, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise the CheckpointError for a file that can't be used."""
    raise CheckpointError(f"{path}: {reason[:1000]}") from cause  # a forged name may be as long as the file
