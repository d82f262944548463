"""A run's state on disk: each rank writes its own file, and what can't be used is named; knows no communicator."""

from .copying import State, copied
from .folder import Folder, clear
from .found import Found, load, steps
from .in_memory import from_block, to_block
from .packing import pack, unpack

__all__ = ["Folder", "Found", "State", "clear", "copied", "from_block", "load", "pack", "steps", "to_block", "unpack"]
