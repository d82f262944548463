"""What goes from a notebook to its ranks and back: a file of tensors and JSON, as checkpoints are; opening one runs no code."""

from pathlib import Path
from typing import Any

from ..checkpoints import pack, unpack
from ..checkpoints.reading import read
from ..checkpoints.safe_file import Label
from ..checkpoints.writing import write
from ..errors import CheckpointError

WANTED = "tensors, NumPy's arrays and numbers, numbers, text, bytes, None, and dicts, lists and tuples of these"

_LABEL = Label("", 0, 0, 1, 0)  # of whom a checkpoint is: nobody asks here


def check_sendable(name: str, value: Any, to: str) -> None:
    """Raise TypeError unless a value is made of what a parcel can hold; `name` is the variable, `to` who should get it."""
    try:
        pack({name: value})
    except CheckpointError as error:
        what = str(error).partition(": wanted")[0].replace(f"state[{name!r}]", name)
        text = f"{name} can't be sent to {to}: {what}; wanted {WANTED}. Send its parts, or a function that makes it"
        raise TypeError(text) from error


def seal(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is there when it is whole; CheckpointError for what it can't hold."""
    tensors, text = pack(content)
    write(path, _LABEL, tensors, text, {})


def unseal(path: Path) -> dict[str, Any]:
    """Return what was sealed, bit for bit; CheckpointError for a file that is damaged."""
    header, tensors = read(path)
    return unpack(tensors, header.state)
