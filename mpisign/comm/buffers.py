"""How blocks in a GPU's memory get into messages: by pinned copies on a stream of their own, or by address.

Beside kernels/cuda only this file knows of streams. A *stream* is a queue of a device's work; an *event* is a mark in it. What
is queued here is never waited for by itself: each copy hands back a function that waits for that copy alone.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .base import _BCAST, _GATHER, Comm


def _pinned(numel: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(numel, dtype=dtype, pin_memory=True)


class Staging:
    """Copies between one GPU and pinned memory of the host, beside what the GPU computes.

    Args:
        device: the GPU.
        cuda: `torch.cuda`; tests give a stand-in that takes notes.
        pinned: makes page-locked memory of 0s from a length and a dtype: from other memory no copy runs beside anything.
    """

    def __init__(
        self, device: torch.device, cuda: Any = torch.cuda, pinned: Callable[[int, torch.dtype], Tensor] = _pinned
    ) -> None:
        self.device, self.buffer = device, pinned
        self._cuda = cuda
        self._side = cuda.Stream(device)

    def now(self) -> Any:
        """Return an event: what is queued on torch's current stream so far."""
        return self._cuda.current_stream(self.device).record_event()

    def to_host(self, block: Tensor, host: Tensor) -> Callable[[], Tensor]:
        """Copy a block, as what is queued so far will leave it, into pinned memory; returns at once.

        The block may be overwritten by what is queued after the copy has been waited for. What is returned blocks until the
        copy is there, in whatever thread, and returns `host`.
        """
        copied = self._copy(host, block, block, self.now())

        def arrived() -> Tensor:
            copied.synchronize()  # before MPI reads
            return host

        return arrived

    def to_device(self, host: Tensor, block: Tensor, after: Any) -> Callable[[], Tensor]:
        """Copy pinned memory into a block once `after`, an event, has come; returns at once, in whatever thread.

        `host` must stay as it is until the copy is done. What is returned lets torch's current stream wait for the copy, the
        caller doesn't, and returns `block`.
        """
        copied = self._copy(block, host, block, after)

        def arrived() -> Tensor:
            self._cuda.current_stream(self.device).wait_event(copied)
            return block

        return arrived

    def fetch(self, block: Tensor) -> Callable[[], Tensor]:
        """As `to_host`, into new memory: for a few numbers that are read some time later."""
        return self.to_host(block.reshape(-1), self.buffer(block.numel(), block.dtype))

    def _copy(self, target: Tensor, source: Tensor, there: Tensor, after: Any) -> Any:
        self._side.wait_event(after)
        with self._cuda.stream(self._side):
            _plain(target).copy_(_plain(source), non_blocking=True)
            there.record_stream(self._side)  # its memory goes to nobody else before the copy is done
            return self._side.record_event()


def staging_for(device: torch.device) -> Staging | None:
    """Return what brings a device's blocks to messages; None on the CPU, where they are."""
    return Staging(device) if device.type == "cuda" else None


def _plain(words: Tensor) -> Tensor:
    """The same bytes in a dtype that every copy knows."""
    return words.view(torch.int64) if words.dtype == torch.uint64 else words


class DeviceMessages:
    """Two verbs for words in a GPU's memory, whose addresses MPI is given: it must be CUDA-aware (`awareness`).

    MPI doesn't know of streams: whoever calls a verb waits for the device first, and what comes is there when it returns.
    Only non-blocking sends and receives between two ranks are used.

    Args:
        comm: an MPIComm, whose ranks call these verbs as they do its own; what is sent counts as its traffic.
    """

    def __init__(self, comm: Comm) -> None:
        if not hasattr(comm, "_mpi"):
            raise TypeError(f"addresses of GPU memory can be given to MPI, not to a {type(comm).__name__}")
        self.comm = comm
        self._mpi: Any = comm._mpi

    def gather(self, block: Tensor, blocks: Tensor | None, root: int = 0) -> None:
        """uint64[k] on each rank -> uint64[size, k], which root gives; None elsewhere."""
        comm = self.comm
        started = time.perf_counter()
        if blocks is None:
            comm._wait_all([self._mpi.Isend(_plain(block), root, _GATHER)])
            comm._count(started, block, sent=1)
            return
        _plain(blocks[root]).copy_(_plain(block))
        others = [rank for rank in range(comm.size) if rank != root]
        comm._wait_all([self._mpi.Irecv(_plain(blocks[rank]), rank, _GATHER) for rank in others])
        comm._count(started, block, received=comm.size - 1)

    def bcast(self, block: Tensor, root: int = 0) -> None:
        """Fill uint64[k] on all ranks with root's."""
        comm = self.comm
        started = time.perf_counter()
        if comm.rank != root:
            comm._wait_all([self._mpi.Irecv(_plain(block), root, _BCAST)])
            comm._count(started, block, received=1)
            return
        comm._wait_all([self._mpi.Isend(_plain(block), rank, _BCAST) for rank in range(comm.size) if rank != root])
        comm._count(started, block, sent=comm.size - 1)
