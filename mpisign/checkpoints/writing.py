"""A checkpoint's file, to disk in one pass: all of it, or nothing under its name."""

import errno
import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ..errors import CheckpointError
from .names import PART
from .safe_file import BETWEEN, CHUNK, DATA_AT, DTYPES, FORMAT, HEADER_AT, LARGEST_HEADER, ZEROS, Label, checksum

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write(path: Path, label: Label, tensors: Mapping[str, Tensor], state: str, details: Mapping[str, str]) -> None:
    """Write a file so that at any moment `path` is either what it was before or whole: under another name, synced, renamed.

    Errors: OSError as it comes, after which the half-written file is gone; CheckpointError for a header that is too long.
    """
    order = sorted(tensors, key=lambda name: -tensors[name].itemsize)  # larger elements first: all of them are aligned
    head = _head(label, {name: tensors[name] for name in order}, state, details)
    if len(head) > LARGEST_HEADER:
        raise CheckpointError(
            f"{path}: its header would have {len(head)} bytes, of {LARGEST_HEADER} that safetensors allows: "
            f"keep long lists and texts of the state as tensors"
        )
    part = path.with_name(path.name + PART)
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
            _write(file, head, [tensors[name] for name in order])
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Bring a folder's names to disk, where its file system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise


def _head(label: Label, tensors: Mapping[str, Tensor], state: str, details: Mapping[str, str]) -> bytes:
    """The header, with zeros for its checksums."""
    metadata = {"format": FORMAT, "header": ZEROS.decode(), "data": ZEROS.decode()}
    metadata |= {name: str(value) for name, value in asdict(label).items()}
    metadata |= {"details": json.dumps(dict(details)), "state": state}  # JSON in JSON: any str stays valid UTF-8
    entries: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)


def _write(file: BinaryIO, head: bytes, tensors: list[Tensor]) -> None:
    """Write length, header and data in one pass, then put the checksums in their places."""
    length, digest = struct.pack("<Q", len(head)), checksum()
    file.write(length + head)
    for tensor in tensors:
        # not reshape: tensors of one element or none may have any strides, and then can't be viewed as bytes
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data
        for start in range(0, len(flat), CHUNK):
            digest.update(flat[start : start + CHUNK])
            file.write(flat[start : start + CHUNK])
    data = digest.hexdigest().encode("ascii")
    head = head[:DATA_AT] + data + head[DATA_AT + len(data) :]
    file.seek(len(length) + HEADER_AT)
    file.write(checksum(length + head).hexdigest().encode("ascii") + BETWEEN + data)
