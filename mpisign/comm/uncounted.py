"""Messages that are no part of the algorithm, such as what an adversary overhears."""

from collections.abc import Iterator
from contextlib import contextmanager

from .base import Comm, Traffic


@contextmanager
def uncounted(comm: Comm) -> Iterator[None]:
    """Let `comm.traffic` stay as it is, whatever is said inside the block."""
    kept, comm.traffic = comm.traffic, Traffic()
    try:
        yield
    finally:
        comm.traffic = kept
