"""The transport over an MPI that outlives its ranks (ULFM): Open MPI 5 under `mpirun --with-ft ulfm`."""

import os
import signal
import socket
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..errors import RankFailure
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
    _mixed = False  # whether processes have joined that are not of COMM_WORLD
    _keep: "ResilientComm"  # the one before: MPI may still write into what it was given

    def __init__(self) -> None:
        self._become(MPI.COMM_WORLD, [])
        left = MPI.Group.Translate_ranks(self._mpi.Get_group(), list(range(self.size)), MPI.COMM_WORLD.Get_group())
        self.members, self.founders = tuple(left), MPI.COMM_WORLD.Get_size()  # some may have died since MPI_Init

    def _become(self, broken: Any, family: Sequence[Any]) -> None:
        """Become the communicator of the ranks of `broken` that are left, when all of them agree that they are."""
        while True:
            _revoke(family)
            self._mpi = broken.Shrink()
            self._mpi.Set_errhandler(MPI.ERRORS_RETURN)
            self._family = [self._mpi]
            Comm.__init__(self, self._mpi.Get_rank(), self._mpi.Get_size())
            self._set_up()
            if self._all_meet():
                return
            broken, family = self._mpi, self._family

    def survivors(self) -> "ResilientComm":
        """Return the communicator of the ranks that are left.

        Raises:
            Deserted: there may have been a partition, and this is not its larger part.
        """
        fresh = ResilientComm.__new__(ResilientComm)
        fresh._become(self._mpi, self._family)
        left = MPI.Group.Translate_ranks(fresh._mpi.Get_group(), list(range(fresh.size)), self._mpi.Get_group())
        fresh._succeeds(self, left)
        fresh._keep, fresh._mixed = self, self._mixed
        self.check_majority(left)
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
        missing = np.empty(MPI.COMM_WORLD.Get_size(), np.int64)
        try:
            merged = MPI.Comm.Get_parent().Merge(True)
            merged.Set_errhandler(MPI.ERRORS_RETURN)
            merged.Bcast(missing, 0)
            place = int(missing[MPI.COMM_WORLD.Get_rank()])
            fresh = cls._placed(merged, place, int(os.environ[JOINS]), [])
        except MPI.Exception as error:
            raise RankFailure(f"the ranks that this process was to join have not waited for it ({error})") from error
        fresh.joined = True
        return fresh

    @classmethod
    def _placed(cls, merged: Any, place: int, founders: int, family: list[Any]) -> "ResilientComm":
        """Become rank `place` of all that are there again."""
        fresh = cls.__new__(cls)
        fresh._mpi = merged.Split(0, place)
        fresh._family = [*family, merged, fresh._mpi]
        fresh._mixed = True
        Comm.__init__(fresh, place, founders)
        fresh._set_up()
        if not fresh._all_meet():
            raise RankFailure(f"rank {place} of {founders}: another rank has died while processes were replaced")
        return fresh

    def all_know(self) -> None:
        """Agree on it."""
        with self._failing():
            self._mpi.Agree(1)

    def dismiss(self) -> None:
        """Agree that all are done."""
        self.all_know()

    def rescue(self) -> bool:
        """Kill the ranks of this machine that are stopped: only then do the others learn that they won't go on."""
        stopped = [pid for pid in self._pids if pid != os.getpid() and _is_stopped(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        return bool(stopped)

    def abort(self, code: int) -> None:
        """End the processes of all ranks; of those that have joined, which MPI's abort does not reach, those of this machine."""
        for pid in set(self._pids) - {os.getpid()} if self._mixed else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        MPI.COMM_WORLD.Abort(code)

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

    def _all_meet(self) -> bool:
        """Let all ranks know of each other; tell, on all alike, whether they do: none goes on that others won't find."""
        try:
            self._introduce()
            known = 1
        except RankFailure:
            known = 0
        try:
            return bool(self._mpi.Agree(known))
        except MPI.Exception:
            return False

    def _introduce(self) -> None:
        """Let all ranks know on which machine each is."""
        name = zlib.crc32(socket.gethostname().encode())
        pairs = self.allgather(torch.tensor([name, os.getpid()], dtype=torch.int64)).tolist()
        self.traffic = Traffic()
        self._pids = [pid for other, pid in pairs if other == name]
        names = [other for other, _ in pairs]
        self.nodes = tuple(
            tuple(rank for rank, other in enumerate(names) if other == one) for one in dict.fromkeys(names)
        )
        node = next(ranks for ranks in self.nodes if self.rank in ranks)
        self.local_rank, self.local_size = node.index(self.rank), len(node)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:  # it has ended, or this is no Linux
        return False


def _revoke(family: Sequence[Any]) -> None:
    for comm in family:
        try:
            comm.Revoke()
        except MPI.Exception:  # it was already, or nobody is left in it
            continue
