"""The transport that waits for nobody for long: all verbs are rounds through rank 0, which goes on without those who are late."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NoReturn, TypeVar

import torch
from torch import Tensor

from .. import errors
from ..errors import MpisignError, ParameterError
from .attendance import Attendance
from .base import Comm, Shared
from .blocks import check_reduction, combine
from .deadline import Deadline
from .messages import BALLOT, BLOCK, Messages
from .mpi import MPI, MPIComm
from .quorum_server import Server
from .quorum_worker import Worker

T = TypeVar("T")

FIRST = 30.0
"""Seconds that the first rounds may take; at most half of the timeout."""

LONGEST_PAUSE = 60.0
"""Seconds that a worker which is late again and again stays out, at most; and at most a quarter of the timeout."""

_TEXT = 1024  # bytes of an error's text, on its way to all ranks
_FORWARDING = 0.3  # seconds for the launcher to pass on what was printed: at an abort it drops what it has not read
_FINALISING = 10.0  # seconds that MPI_Finalize may take


class QuorumComm(MPIComm):
    """An MPIComm that, once it is `open`, goes on without workers that are late, and takes them in again.

    Every verb is one or two rounds, numbered alike on all ranks: upwards, each worker's block to rank 0, which waits until
    those of all *present* workers are there, or until a deadline when at least a quorum is; then the others are away, and
    not waited for in the rounds to come. Downwards, a block from rank 0 to each present worker. A block that comes from an
    away worker is dropped, and says that it is back: it gets the present state at the next `readmit`, and raises
    LeftBehind there. No message to a worker is waited for, and one that is away is sent nothing; of each worker one message
    at a time is taken, of no more bytes than a round can have.

    Rank 0 itself can't be late: that, and fewer than a quorum, is the watchdog's (`Guard`).

    Verbs: collect, gather and bcast with root 0; allgather, where absent ranks' rows are 0; allreduce, barrier and
    agreement, in which absent ranks have no part. Others raise ParameterError.

    Args:
        comm: an mpi4py intracommunicator, COMM_WORLD by default. All its ranks must construct together.
        quorum: the share of all ranks that must be there at the deadline, rank 0 among them, in (0, 1].
        patience: see `Deadline`.
        late: whether a late ballot is dropped, or counted in the next vote, in which its worker casts no other.
        timeout: seconds after which the watchdog ends the job; 0: never. No deadline of a worker's reaches it.
        patient: as for MPIComm.
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        quorum: float = 0.5,
        patience: float = 20.0,
        late: Literal["drop", "count"] = "drop",
        timeout: float = 0.0,
        patient: bool | None = None,
    ) -> None:
        super().__init__(comm, patient)
        limit = timeout or math.inf
        self.quorum = max(1, math.ceil(quorum * self.size - 1e-9))
        self._attendance = Attendance(range(1, self.size), min(LONGEST_PAUSE, limit / 4))
        self._messages, self._is_open = Messages(self._mpi, self.patient), False
        self._side: Server | Worker = Worker(self._messages)
        if self.rank == 0:
            deadline = Deadline(patience, min(FIRST, limit / 2))
            self._side = Server(self._messages, self._attendance, deadline, self.size, self.quorum, late == "count")

    # ---- who is there ----

    def open(self) -> None:
        """From here on a rank may be late. All ranks call it at the same place."""
        self._is_open = True
        self._side.open()

    @property
    def away(self) -> tuple[int, ...]:
        """On rank 0: the ranks that are not waited for."""
        return self._attendance.away

    def readmit(self, state: Callable[[], Tensor]) -> None:
        """Give those that are back the present state, and wait for them from here on."""
        self._side.readmit(state)

    def news(self) -> list[dict[str, Any]]:
        """Return what has happened since the last call: `event`, "late" or "returned", `rank`, `seconds` waited or away."""
        return self._attendance.news()

    def lateness(self) -> dict[str, Any]:
        """Return how many deadlines have passed, in how many seconds, and by rank votes that were missed, and returns."""
        missed, returns = self._attendance.counts()
        numbers = [self._attendance.deadlines, self._attendance.seconds, *missed, *returns]
        deadlines, seconds, *each = self.bcast(torch.tensor(numbers, dtype=torch.float64)).tolist()
        parts = each[: self.size - 1], each[self.size - 1 :]
        by_rank = [{str(self.members[1 + w]): int(n) for w, n in enumerate(part) if n} for part in parts]
        return {"deadlines": int(deadlines), "seconds": seconds, "missed": by_rank[0], "returns": by_rank[1]}

    def leave(self, code: int) -> int:
        """Return the exit code; on rank 0, where somebody is away, end the job with it: that one may never come."""
        if not self._is_open or self.rank:
            return code
        sys.stdout.flush()
        if self.away:
            ranks = ", ".join(str(self.members[rank]) for rank in self.away)
            print(
                f"mpisign: rank {ranks} is away; the job ends without it, with code {code}", file=sys.stderr, flush=True
            )
            time.sleep(_FORWARDING)
            self.abort(code)
        # one that is stopped from here on would hold up MPI_Finalize
        end = threading.Timer(_FINALISING, self.abort, [code])
        end.daemon = True
        end.start()
        return code

    # ---- verbs ----

    def collect(self, block: Tensor, root: int = 0, buffers: int = 8) -> Iterator[list[Tensor]]:
        """On root, yield the present ranks' blocks as they arrive, its own first, then late ones; elsewhere send."""
        if not self._is_open:
            yield from super().collect(block, root, buffers)
            return
        started = self._begin_round(block, root)
        if isinstance(self._side, Worker):
            self._side.rows(block, BALLOT)
            self._count(started, block, sent=1)
            return
        yield [block]
        for arrived in self._side.arrivals(block, BALLOT, buffers):
            self._count(started, block, received=len(arrived))
            yield [payload for _, payload in arrived]
            started = time.perf_counter()
        if late := self._side.take_late(block):
            yield late

    def gather(self, block: Tensor, root: int = 0) -> Tensor | None:
        """[k] on each rank -> [size, k] on root, with 0 for those that are away; None elsewhere."""
        if not self._is_open:
            return super().gather(block, root)
        started = self._begin_round(block, root)
        rows, _ = self._side.rows(block, BALLOT)
        self._count(
            started, block, sent=int(self.rank > 0), received=len(self._attendance.present) if self.rank == 0 else 0
        )
        return rows

    def bcast(self, block: Tensor, root: int = 0) -> Tensor:
        """Fill `block` on all present ranks with root's, in place, and return it."""
        if not self._is_open:
            return super().bcast(block, root)
        started = self._begin_round(block, root)
        self._side.down(block)
        copies = len(self._attendance.present) if self.rank == 0 else 0
        self._count(started, block, sent=copies, received=int(self.rank > 0))
        return block

    def allreduce(self, block: Tensor, op: Literal["sum", "min", "max"] = "sum") -> Tensor:
        """Replace `block` by the sum, minimum or maximum over the ranks that are heard, in their order."""
        if not self._is_open:
            return super().allreduce(block, op)
        check_reduction(block, op)
        return block.copy_(combine(self.allgather(block)[list(self.heard)], op))

    def agree(self, number: int) -> bool:
        """Tell, on all ranks alike, whether every rank that is heard gave the same number (63 bits)."""
        numbers = self.allgather(torch.tensor([number], dtype=torch.int64))[list(self.heard)]
        return bool((numbers == numbers[0]).all())

    def raise_together(self, error: MpisignError | None) -> None:
        """Raise on all ranks the error of the lowest rank that has one; no more than a kilobyte of it."""
        if not self._is_open:
            super().raise_together(error)
            return
        text = b"" if error is None else f"{type(error).__name__}\n{error}".encode()[:_TEXT]
        said = self.allgather(torch.frombuffer(bytearray(text.ljust(_TEXT, b"\0")), dtype=torch.uint8))
        texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="ignore") for row in said]
        for source, (name, _, reason) in enumerate(one.partition("\n") for one in texts):
            if name:
                found = error if source == self.rank and error else getattr(errors, name, MpisignError)(reason)
                raise self.alike(found)

    def split(self, color: int) -> Comm:
        """Refused, once open."""
        return self._refuse("split") if self._is_open else super().split(color)

    def shared(self, words: int) -> Shared:
        """Refused, once open."""
        return self._refuse("shared") if self._is_open else super().shared(words)

    def aside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Refused, once open."""
        return self._refuse("aside") if self._is_open else super().aside(task)

    # ---- the transport ----

    def _isend(self, block: Tensor, dest: int, tag: int) -> MPI.Request:
        return self._refuse("send and post") if self._is_open else super()._isend(block, dest, tag)

    def _irecv(self, block: Tensor, source: int, tag: int) -> MPI.Request:
        return self._refuse("receive and post") if self._is_open else super()._irecv(block, source, tag)

    def _alltoall(self, blocks: Any, result: Tensor) -> None:
        if self._is_open:
            self._refuse("alltoall")
        super()._alltoall(blocks, result)

    def _allgather(self, block: Tensor, blocks: Tensor) -> None:
        if not self._is_open:
            super()._allgather(block, blocks)
            return
        self._begin_round(block, 0)
        rows, heard = self._side.rows(block, BLOCK)
        both = torch.zeros(8 * self.size + blocks.nbytes, dtype=torch.uint8)
        there, content = both[: 8 * self.size].view(torch.int64), both[8 * self.size :].view(block.dtype)
        if rows is not None:
            there[heard] = 1
            content[:] = rows.view(-1)
        self._messages.round += 1
        self._side.down(both)
        self.heard = tuple(there.nonzero().view(-1).tolist())
        blocks.view(-1)[:] = content

    @staticmethod
    def _refuse(verb: str) -> NoReturn:
        raise ParameterError(
            f"a quorum can't {verb}: it hears of a late worker only at rank 0; use a sign vote with the server's count, or no "
            f"--quorum"
        )

    # ---- rounds ----

    def _begin_round(self, block: Tensor, root: int) -> float:
        if root:
            self._refuse(f"gather or broadcast at rank {root}")
        self._messages.round += 1
        return self._begin(block)
