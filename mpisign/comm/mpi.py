"""The transport over mpi4py; importing this file initialises MPI."""

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import mpi4py
import torch
from torch import Tensor

from ..environment import check_vendor, launched, prepare_to_survive
from ..errors import EnvironmentProblem
from .base import Comm, Shared

T = TypeVar("T")

_wanted, mpi4py.rc.initialize = mpi4py.rc.initialize, False
from mpi4py import MPI as MPI  # noqa: E402 - resilient.py takes it from here

mpi4py.rc.initialize = _wanted


def _wait_for_all_ranks_to_start() -> None:
    """Initialise MPI: where a rank dies before, the others end here when their time is up, and its name is all they can say."""
    MPI.Init_thread(MPI.THREAD_MULTIPLE)


if not MPI.Is_initialized():
    # before MPI_Init, because some libraries end the process there without saying why
    check_vendor(MPI.get_vendor()[0], launched())
    prepare_to_survive()
    _wait_for_all_ranks_to_start()
    atexit.register(lambda: None if MPI.Is_finalized() else MPI.Finalize())

_SPINS = 5  # tests before the first sleep: a message that is there costs no system call
_NAPS = ((50, 20e-6), (500, 200e-6))  # (up to this many tests, sleep so many seconds)
_LONG_NAP = 1e-3


class MPIComm(Comm):
    """Ranks of an mpi4py communicator, on a duplicate of it, so that messages never meet the user's.

    Where a node has more ranks than cores, every wait polls and sleeps, and collectives are made of messages: an MPI that
    spins while it waits would take the processor from the ranks that compute. Elsewhere MPI's own calls are used.

    Args:
        comm: an mpi4py intracommunicator, COMM_WORLD by default. All its ranks must construct together.
        patient: whether to sleep while waiting; by default found out as said above.
    """

    def __init__(self, comm: MPI.Intracomm | None = None, patient: bool | None = None) -> None:
        self._mpi = (MPI.COMM_WORLD if comm is None else comm).Dup()
        node: Any = self._mpi.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(self._mpi.Get_rank(), self._mpi.Get_size(), _machines(self._mpi, node))
        self.local_rank, self.local_size = node.Get_rank(), node.Get_size()
        crowded = self.local_size > _cores_of(node) if patient is None else patient
        node.Free()
        self._executor: ThreadPoolExecutor | None = None
        # on all nodes or on none: it decides which messages a collective is made of
        self.patient = bool(self._mpi.allreduce(int(crowded), MPI.MAX))
        atexit.register(self._finish)

    def _finish(self) -> None:
        """Before MPI ends, wait for messages that nobody has waited for."""
        for pending in () if MPI.Is_finalized() else list(self._under_way):
            pending.wait()

    def shared(self, words: int) -> Shared:
        """Allocate a window of MPI's."""
        return _Window(self.node, words)

    def _split(self, ranks: list[int]) -> "MPIComm":
        part: Any = self._mpi.Split(ranks[0], self.rank)
        result = MPIComm(part, self.patient)
        part.Free()
        return result

    def abort(self, code: int) -> None:
        """End the processes of all ranks of the job, at once."""
        MPI.COMM_WORLD.Abort(code)

    def leave(self, code: int) -> int:
        """Return the exit code; or end this process with it, where that must not be left to MPI."""
        return code

    def aside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Run the task in a thread of its own, which sleeps while it waits: the core is for those who compute."""

        def patiently() -> T:
            kept, self.patient = self.patient, True
            try:
                return task()
            finally:
                self.patient = kept

        if self._executor is None:
            if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
                raise EnvironmentProblem(
                    "this MPI doesn't let several threads communicate (it gave less than MPI_THREAD_MULTIPLE), which "
                    "overlapping needs: leave overlap off, or let mpi4py initialise MPI"
                )
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mpisign")
        return self._executor.submit(patiently).result

    def _isend(self, block: Tensor, dest: int, tag: int) -> MPI.Request:
        return self._mpi.Isend(block.numpy(), dest, tag)

    def _irecv(self, block: Tensor, source: int, tag: int) -> MPI.Request:
        return self._mpi.Irecv(block.numpy(), source, tag)

    def _wait_all(self, requests: list[Any]) -> None:
        if not self.patient:
            MPI.Request.Waitall(requests)
            return
        pauses = naps()
        while not MPI.Request.Testall(requests):
            next(pauses)

    def _wait_some(self, requests: list[Any]) -> list[int]:
        if not self.patient:
            return sorted(MPI.Request.Waitsome(requests) or [])
        pauses = naps()
        while not (done := MPI.Request.Testsome(requests)):
            next(pauses)
        return sorted(done)

    def _bcast(self, block: Tensor, root: int) -> None:
        if self.patient:
            super()._bcast(block, root)
        else:
            self._mpi.Bcast(block.numpy(), root)

    def _alltoall(self, blocks: Sequence[Tensor] | Tensor, result: Tensor) -> None:
        if self.patient or not isinstance(blocks, Tensor):
            super()._alltoall(blocks, result)
        else:
            self._mpi.Alltoall(blocks.numpy(), result.numpy())

    def _allgather(self, block: Tensor, blocks: Tensor) -> None:
        if self.patient:
            super()._allgather(block, blocks)
        else:
            self._mpi.Allgather(block.numpy(), blocks.numpy())


class _Window(Shared):
    """A shared-memory window of MPI, open for loads and stores at all times."""

    def __init__(self, node: Comm, words: int) -> None:
        assert isinstance(node, MPIComm)
        self._node = node
        whole = (
            8 * words * node.size if node.rank == 0 else 0
        )  # one rank allocates for all, so that rows are contiguous
        self._window = MPI.Win.Allocate_shared(whole, 8, comm=node._mpi)
        self._window.Lock_all()
        memory, _ = self._window.Shared_query(0)
        self.rows = torch.frombuffer(memory, dtype=torch.uint64, count=node.size * words).view(node.size, words)
        self.rows[node.rank] = 0
        self.fence()

    def fence(self) -> None:
        self._window.Sync()
        self._node.barrier()
        self._window.Sync()


def _machines(comm: Any, node: Any) -> list[list[int]]:
    """The ranks of each machine, by the lowest rank that shares memory with each."""
    lowest = comm.allgather(node.allreduce(comm.Get_rank(), MPI.MIN))
    return [[rank for rank, first in enumerate(lowest) if first == machine] for machine in sorted(set(lowest))]


def naps() -> Iterator[None]:
    """Sleep a little longer with each step; the first steps don't sleep."""
    for _ in range(_SPINS):
        yield
    for count, seconds in _NAPS:
        for _ in range(count):
            time.sleep(seconds)
            yield
    while True:
        time.sleep(_LONG_NAP)
        yield


def _cores_of(node: MPI.Intracomm) -> int:
    """How many different cores the ranks of a node may use together: a bound rank has few of its own."""
    mask = torch.zeros(max(os.cpu_count() or 1, 1024), dtype=torch.uint8).numpy()
    if hasattr(os, "sched_getaffinity"):
        mask[sorted(os.sched_getaffinity(0))] = 1
    else:
        mask[: os.cpu_count()] = 1
    node.Allreduce(MPI.IN_PLACE, mask, MPI.MAX)
    return int(mask.sum())
