"""A checkpoint's file, from disk: what is damaged, forged or no file is named; nothing is run, awaited or made unchecked."""

import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .safe_file import CHUNK, DATA_AT, DTYPES, HEADER_AT, LARGEST_HEADER, PREFIX, ZEROS, Header, Label, checksum, refuse


def read_header(path: Path) -> Header:
    """Return a file's header, whose own checksum is right, as is the file's length; its data stay unread.

    Errors: CheckpointError names the file and what is wrong.
    """
    with _opened(path) as file:
        return _header(path, file)


def verify(path: Path) -> Header:
    """Return the header of a file whose checksums are both right; CheckpointError else. Takes no memory for the data."""
    with _opened(path) as file:
        header, digest, buffer = _header(path, file), checksum(), memoryview(bytearray(CHUNK))
        for _, _, _, nbytes in header.tensors:
            for start in range(0, nbytes, CHUNK):
                _fill(path, file, buffer[: min(CHUNK, nbytes - start)], digest)
        _check_data(path, header, digest.hexdigest())
        return header


def read(path: Path) -> tuple[Header, dict[str, Tensor]]:
    """Return header and tensors of a file whose checksums are both right; CheckpointError else."""
    with _opened(path) as file:
        header, digest, tensors = _header(path, file), checksum(), dict[str, Tensor]()
        for name, dtype, shape, nbytes in header.tensors:
            try:
                flat = torch.empty(nbytes, dtype=torch.uint8)
                tensors[name] = flat.view(dtype).view(shape)
            except RuntimeError as error:  # no memory for so long a file, or a forged shape such as [0, 2⁶², 2⁶²]
                refuse(path, f"no tensor {name!r} of {dtype}{shape} can be made ({error})", error)
            _fill(path, file, flat.numpy().data, digest)
        _check_data(path, header, digest.hexdigest())
        return header, tensors


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """Open a regular file; a link isn't followed, and a pipe or a device not waited for."""
    try:
        _check_regular(path, path.lstat().st_mode)  # before it is opened: opening a device may do something
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            _check_regular(path, os.fstat(descriptor).st_mode)
            yield file
    except FileNotFoundError as error:
        refuse(path, "is missing", error)
    except OSError as error:
        refuse(path, f"can't be read ({error.strerror})", error)


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder"}
        refuse(path, f"is {kinds.get(stat.S_IFMT(mode), 'a device or socket')}: wanted a regular file")


def _header(path: Path, file: FileIO) -> Header:
    """Read and check length and header; every length is compared with the file's before anything so long is made."""
    nbytes = os.fstat(file.fileno()).st_size
    if nbytes < 8 + DATA_AT + len(ZEROS):
        refuse(path, f"has {nbytes} bytes: it was cut off, or is from another program")
    start = bytearray(8)
    _fill(path, file, memoryview(start))
    (length,) = struct.unpack("<Q", start)
    if not DATA_AT + len(ZEROS) <= length <= min(nbytes - 8, LARGEST_HEADER):
        refuse(
            path, f"says that its header has {length} bytes, of {nbytes} in all: it is damaged, or from another program"
        )
    head = bytearray(length)
    _fill(path, file, memoryview(head))
    if not head.startswith(PREFIX):
        refuse(path, "starts otherwise than this version's checkpoints do: it is damaged, or from another program")
    place = slice(HEADER_AT, HEADER_AT + len(ZEROS))
    kept, head[place] = bytes(head[place]), ZEROS
    if checksum(start + head).hexdigest().encode("ascii") != kept:
        refuse(path, "the checksum of its header is wrong: it is damaged")
    try:
        header = _parsed(json.loads(head))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # with a right checksum it was forged, and that can raise almost anything
        refuse(path, f"its header is none of a checkpoint ({type(error).__name__}: {error})", error)
    wanted = 8 + length + sum(entry[3] for entry in header.tensors)
    if wanted != nbytes:
        refuse(
            path,
            f"has {nbytes} bytes where its header says {wanted}: it was {'cut off' if nbytes < wanted else 'extended'}",
        )
    return header


def _parsed(entries: dict[str, Any]) -> Header:
    metadata = entries.pop("__metadata__")
    label = Label(metadata["run"], *(int(metadata[name]) for name in ("step", "rank", "size", "saved")))
    details = json.loads(metadata["details"])
    texts = [label.run, metadata["state"], metadata["data"], *details, *details.values()]
    if not all(type(text) is str for text in texts):
        raise ValueError("something in it should be text and isn't")
    tensors, begin = [], 0
    for name, entry in entries.items():
        dtype, shape, (first, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if len(shape) > 64 or not all(type(number) is int and 0 <= number < 2**63 for number in (*shape, first, end)):
            raise ValueError(f"tensor {name!r} has shape and offsets that no tensor has")
        if first != begin or end - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} lies in bytes {first} to {end}, where it can't be")
        tensors.append((name, dtype, shape, end - first))
        begin = end
    return Header(label, metadata["state"], details, tensors, metadata["data"])


def _fill(path: Path, file: FileIO, view: memoryview, digest: "hashlib.blake2b | None" = None) -> None:
    """Fill memory from a file, and add it to the checksum, chunk by chunk."""
    while len(view):
        count = file.readinto(view[:CHUNK])
        if not count:
            refuse(path, "ends too early: it was cut off while it was read")
        if digest is not None:
            digest.update(view[:count])
        view = view[count:]


def _check_data(path: Path, header: Header, digits: str) -> None:
    if digits != header.data:
        refuse(path, "the checksum of its tensors is wrong: it is damaged")
