"""The transport over an MPI that outlives its ranks (ULFM): Open MPI 5 under `mpirun --with-ft ulfm`."""

import os
import signal
import socket
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..errors import Deserted, RankFailure
from .base import Comm, Traffic
from .mpi import MPI, MPIComm

JOINS = "MPISIGN_JOINS"
"""An environment variable: this process is to join those that started it."""


class ResilientComm(MPIComm):
    """Ranks of COMM_WORLD of which any may die: the others get a RankFailure, and go on with `survivors`.

    All verbs are made of messages between two ranks, which is what was seen to fail cleanly; each wait polls and sleeps.
    Whoever meets a failure first revokes the communicator, and with it all that were split off, so that nobody waits for
    a rank that has left to recover. Source: Bland, Bouteiller, Herault, Bosilca, Dongarra 2013, and the MPI Forum's ULFM.
    """

    resilient: ClassVar[bool] = True

    _family: list[Any]  # this communicator and its parts, to be revoked together
    _pids: list[int]  # of the ranks of this machine
    _keep: "ResilientComm"  # the one before: MPI may still write into what it was given

    def __init__(self) -> None:
        self._become(MPI.COMM_WORLD, None)

    def _become(self, broken: Any, before: "ResilientComm | None") -> None:
        """Become the communicator of the ranks of `broken` that are left."""
        self._mpi = _left_of(broken, before._family if before else [])
        self._family = [self._mpi]
        rank, size = self._mpi.Get_rank(), self._mpi.Get_size()
        if before is None:
            Comm.__init__(self, rank, size)
            self._set_up()
            self.nodes = tuple(map(tuple, self._machines()))
        else:
            left = MPI.Group.Translate_ranks(self._mpi.Get_group(), list(range(size)), before._mpi.Get_group())
            Comm.__init__(self, rank, size, before._nodes_of(left))
            self._set_up()
            self._succeeds(before, left)
            self._pids = before._pids
            self._keep = before
        node = next(ranks for ranks in self.nodes if rank in ranks)
        self.local_rank, self.local_size = node.index(rank), len(node)

    def survivors(self) -> "ResilientComm":
        """Return the communicator of the ranks that are left.

        Raises:
            Deserted: there may have been a partition, and this is not its larger part.
        """
        fresh = ResilientComm.__new__(ResilientComm)
        fresh._become(self._mpi, self)
        lowest = fresh.members[0] == self.members[0]
        if len(self.nodes) > 1 and 2 * fresh.size + lowest <= self.size:
            raise Deserted(
                f"only {fresh.size} of {self.size} ranks are left, on several machines: the others may have been cut off "
                f"and go on by themselves; start again with --resume auto"
            )
        return fresh

    def refilled(self, command: Sequence[str]) -> "ResilientComm":
        """Return the communicator of these ranks and of new processes, in the places of those that died."""
        missing = sorted(set(range(self.founders)) - set(self.members))
        with self._failing():
            inter = self._mpi.Spawn("env", [f"{JOINS}={self.founders}", *command], len(missing), root=0)
            merged = inter.Merge(False)
            merged.Set_errhandler(MPI.ERRORS_RETURN)
            merged.Bcast(np.array(missing, np.int64), 0)
            fresh = ResilientComm._placed(merged, self.members[self.rank], self.founders, self._family)
        fresh.traffic, fresh._keep = self.traffic, self
        return fresh

    @classmethod
    def joining(cls) -> "ResilientComm":
        """Join those that have started this process with `refilled`."""
        parent = MPI.Comm.Get_parent()
        missing = np.empty(MPI.COMM_WORLD.Get_size(), np.int64)
        merged = parent.Merge(True)
        merged.Set_errhandler(MPI.ERRORS_RETURN)
        merged.Bcast(missing, 0)
        place = int(missing[MPI.COMM_WORLD.Get_rank()])
        fresh = cls._placed(merged, place, int(os.environ[JOINS]), [])
        fresh.joined = True
        return fresh

    @classmethod
    def _placed(cls, merged: Any, place: int, founders: int, family: list[Any]) -> "ResilientComm":
        """Become rank `place` of all that are there again."""
        fresh = cls.__new__(cls)
        fresh._mpi = merged.Split(0, place)
        fresh._family = [*family, merged, fresh._mpi]
        Comm.__init__(fresh, place, founders)
        fresh._set_up()
        fresh.nodes = tuple(map(tuple, fresh._machines()))
        node = next(ranks for ranks in fresh.nodes if place in ranks)
        fresh.local_rank, fresh.local_size = node.index(place), len(node)
        return fresh

    def dismiss(self) -> None:
        """Agree that all are done."""
        with self._failing():
            self._mpi.Agree(1)

    def rescue(self) -> bool:
        """Kill the ranks of this machine that are stopped: only then do the others learn that they won't go on."""
        stopped = [pid for pid in self._pids if pid != os.getpid() and _is_stopped(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        return bool(stopped)

    def leave(self, code: int) -> NoReturn:
        """End this process without MPI_Finalize, in which ranks can wait for the dead for ever."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    # ---- the transport ----

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn MPI's errors into a RankFailure, after telling all others."""
        try:
            yield
        except MPI.Exception as error:
            _revoke(self._family)
            text = MPI.Get_error_string(error.Get_error_class())
            raise RankFailure(f"rank {self.rank} of {self.size}: another rank has died ({text})") from error

    def _isend(self, block: Tensor, dest: int, tag: int) -> MPI.Request:
        with self._failing():
            return super()._isend(block, dest, tag)

    def _irecv(self, block: Tensor, source: int, tag: int) -> MPI.Request:
        with self._failing():
            return super()._irecv(block, source, tag)

    def _wait_all(self, requests: list[Any]) -> None:
        with self._failing():
            super()._wait_all(requests)

    def _wait_some(self, requests: list[Any]) -> list[int]:
        with self._failing():
            return super()._wait_some(requests)

    def _split(self, ranks: list[int]) -> "ResilientComm":
        part = ResilientComm.__new__(ResilientComm)
        with self._failing():
            mpi: Any = self._mpi.Split(ranks[0], self.rank)
        part._mpi = mpi
        Comm.__init__(part, ranks.index(self.rank), len(ranks), self._nodes_of(ranks))
        part._set_up()
        part._family = self._family
        self._family.append(part._mpi)
        part.local_rank, part.local_size = self.local_rank, self.local_size
        part.barrier()  # to revoke a communicator that others are still making is a segmentation fault
        return part

    def _set_up(self) -> None:
        self._executor, self.patient = None, True

    def _machines(self) -> list[list[int]]:
        """The ranks of each machine, by its name."""
        name = zlib.crc32(socket.gethostname().encode())
        pairs = self.allgather(torch.tensor([name, os.getpid()], dtype=torch.int64)).tolist()
        self.traffic = Traffic()
        self._pids = [pid for other, pid in pairs if other == name]
        names = [other for other, _ in pairs]
        return [[rank for rank, other in enumerate(names) if other == one] for one in dict.fromkeys(names)]


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:  # it has ended, or this is no Linux
        return False


def _left_of(broken: Any, family: Sequence[Any]) -> Any:
    """Shrink a communicator until all that are left agree that they are."""
    while True:
        _revoke(family)
        fresh = broken.Shrink()
        fresh.Set_errhandler(MPI.ERRORS_RETURN)
        try:
            if fresh.Agree(1):
                return fresh
        except MPI.Exception:
            pass
        broken, family = fresh, [fresh]


def _revoke(family: Sequence[Any]) -> None:
    for comm in family:
        try:
            comm.Revoke()
        except MPI.Exception:  # it was already, or nobody is left in it
            continue
