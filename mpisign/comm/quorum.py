"""The transport that waits for nobody for long: all verbs are rounds through rank 0, which goes on without those who are late."""

import itertools
import math
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from .. import errors
from ..errors import DisagreementError, LeftBehind, MpisignError, ParameterError
from .attendance import Attendance
from .base import Comm, Shared, combine
from .deadline import Deadline
from .mpi import MPI, MPIComm, _naps

T = TypeVar("T")

FIRST = 30.0
"""Seconds that the first rounds may take; at most half of the timeout."""

LONGEST_PAUSE = 60.0
"""Seconds that a worker which is late again and again stays out, at most; and at most a quarter of the timeout."""

_UP, _DOWN, _CONTENT = 8192, 8193, 8194  # tags
_BALLOT, _BLOCK, _STATE = range(3)  # what a message carries
_HEADER = 24  # bytes: int64 number of the round, what the message carries, and bytes of that
_GAP = 0.1  # seconds: the server counts no more of its own absence as a worker's lateness
_TEXT = 1024  # bytes of an error's text, on its way to all ranks
_ROOM = 1 << 20  # bytes by which a state may be longer than twice one's own
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
        self._deadline, self._counts_late = Deadline(patience, min(FIRST, limit / 2)), late == "count"
        self._attendance = Attendance(range(1, self.size), min(LONGEST_PAUSE, limit / 4))
        self._is_open, self._closed_at = False, time.monotonic()
        self._round = self._boundary = 0  # rounds so far, and at the last boundary
        self._state: Callable[[], Tensor] = lambda: torch.empty(0, dtype=torch.uint8)
        self._late_ballots: dict[int, Tensor] = {}  # to be counted in the next vote
        self._largest = 0  # bytes of a block
        self._coming: dict[int, tuple[Any, Tensor]] = {}  # messages of which the bytes are under way
        self._spare: list[Tensor] = []
        self._status = MPI.Status()
        self._outbox: list[tuple[Any, Any]] = []  # alive until sent

    # ---- who is there ----

    def open(self) -> None:
        """From here on a rank may be late. All ranks call it at the same place."""
        self._is_open, self._closed_at = True, time.monotonic()

    @property
    def away(self) -> tuple[int, ...]:
        """On rank 0: the ranks that are not waited for."""
        return self._attendance.away

    def readmit(self, state: Callable[[], Tensor]) -> None:
        """Give those that are back the present state, and wait for them from here on."""
        self._state, self._boundary = state, self._round
        if self.away:
            for found in filter(None, [self._poll(rank, _UP) for rank in self.away]):
                self._is_in_time(*found)
            self._let_in()

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
        if self.rank:
            self._send([0], _UP, _BALLOT, block)
            self._count(started, block, sent=1)
            return
        yield [block]
        for arrived in self._arrivals(block, _BALLOT, buffers):
            self._count(started, block, received=len(arrived))
            yield [payload for _, payload in arrived]
            started = time.perf_counter()
        if late := self._take_late(block):
            yield late

    def gather(self, block: Tensor, root: int = 0) -> Tensor | None:
        """[k] on each rank -> [size, k] on root, with 0 for those that are away; None elsewhere."""
        if not self._is_open:
            return super().gather(block, root)
        started = self._begin_round(block, root)
        rows, _ = self._rows(block, _BALLOT)
        self._count(
            started, block, sent=int(self.rank > 0), received=len(self._attendance.present) if self.rank == 0 else 0
        )
        return rows

    def bcast(self, block: Tensor, root: int = 0) -> Tensor:
        """Fill `block` on all present ranks with root's, in place, and return it."""
        if not self._is_open:
            return super().bcast(block, root)
        started = self._begin_round(block, root)
        self._down(block)
        copies = len(self._attendance.present) if self.rank == 0 else 0
        self._count(started, block, sent=copies, received=int(self.rank > 0))
        return block

    def allreduce(self, block: Tensor, op: Literal["sum", "min", "max"] = "sum") -> Tensor:
        """Replace `block` by the sum, minimum or maximum over the ranks that are heard, in their order."""
        if not self._is_open:
            return super().allreduce(block, op)
        self._check_reduction(block, op)
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
                found.everywhere = True
                raise found

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
        rows, heard = self._rows(block, _BLOCK)
        both = torch.zeros(8 * self.size + blocks.nbytes, dtype=torch.uint8)
        there, content = both[: 8 * self.size].view(torch.int64), both[8 * self.size :].view(block.dtype)
        if rows is not None:
            there[heard] = 1
            content[:] = rows.view(-1)
        self._round += 1
        self._down(both)
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
        self._round += 1
        return self._begin(block)

    def _down(self, block: Tensor) -> None:
        """Fill `block` with rank 0's."""
        if self.rank:
            self._hear(block)
        else:
            self._send(sorted(self._attendance.present), _DOWN, _BLOCK, block)
            self._closed_at = time.monotonic()

    def _rows(self, block: Tensor, kind: int) -> tuple[Tensor | None, list[int]]:
        """Send a block up; on rank 0, [size, k] with 0 for those that are away, and who is not."""
        if self.rank:
            self._send([0], _UP, kind, block)
            return None, []
        rows, heard = torch.zeros((self.size, len(block)), dtype=block.dtype), [0]
        rows[0] = block
        for arrived in self._arrivals(block, kind, self.size):
            for rank, payload in arrived:
                rows[rank] = payload
                heard.append(rank)
        return rows, sorted(heard)

    def _arrivals(self, block: Tensor, kind: int, buffers: int) -> Iterator[list[tuple[int, Tensor]]]:
        """On rank 0, yield who has sent what, about `buffers` at a time, until the round is closed; valid until the next."""
        self._largest = max(self._largest, block.nbytes)
        missing, came, pauses, clock = set(self._attendance.present), 1, self._pauses(), _Clock()
        # who takes as long again as rank 0 itself has since the last round is in time
        limit = max(self._deadline.seconds, time.monotonic() - self._closed_at)
        ready = list[tuple[int, Tensor]]()
        self._expect(missing, buffers)
        if len(missing) <= buffers:  # one look at all costs least
            requests = [self._coming[rank][0] for rank in missing]
            while not MPI.Request.Testall(requests) and clock.look() < limit:
                next(pauses)
        while missing:
            arrived = self._arrived(missing, kind, block)
            if arrived:
                ready += arrived
                missing -= {rank for rank, _ in arrived}
                came += len(arrived)
                if missing and len(ready) >= buffers:
                    yield self._handed_out(ready, block)
                    ready = []
                    self._expect(missing, buffers)
            else:
                next(pauses)
            if not missing or clock.look() < limit:
                continue
            if came >= self.quorum:
                self._attendance.close_without(missing, clock.waited)
                break
            missing |= self._let_in()
        else:
            if kind == _BALLOT and came > 1:
                self._deadline.note(clock.waited)
        if kind == _BALLOT:
            self._attendance.vote_is_over()
        if ready:
            yield self._handed_out(ready, block)

    def _expect(self, missing: set[int], most: int) -> None:
        """Give MPI memory for messages of some of those that are missing: that costs less than to look for them."""
        for rank in sorted(missing)[:most]:
            if rank not in self._coming:
                buffer = self._memory(_HEADER + self._largest)
                self._coming[rank] = self._mpi.Irecv(buffer.numpy(), rank, _UP), buffer

    def _handed_out(self, messages: list[tuple[int, Tensor]], block: Tensor) -> list[tuple[int, Tensor]]:
        """The blocks in messages, whose memory is used again for the next ones."""
        self._spare = [message for _, message in messages if len(message) == _HEADER + self._largest]
        return [(rank, message[_HEADER : _HEADER + block.nbytes].view(block.dtype)) for rank, message in messages]

    def _arrived(self, missing: set[int], kind: int, block: Tensor) -> list[tuple[int, Tensor]]:
        """The messages of this round that have come from those that are missing; takes what comes from others, too."""
        expected = [rank for rank in self._coming if rank in missing]
        found: list[tuple[int, Tensor] | None] = [
            self._taken(rank) for rank in expected if self._coming[rank][0].Test()
        ]
        if len(expected) < len(missing) or self.away:
            found += [self._poll(rank, _UP) for rank in sorted(missing.difference(expected).union(self.away))]
        arrived = list[tuple[int, Tensor]]()
        for rank, message in filter(None, found):
            if not self._is_in_time(rank, message):
                continue
            if _header(message) != (self._round, kind, block.nbytes):
                raise self._confusion(rank, message)
            arrived.append((rank, message))
        return arrived

    def _is_in_time(self, rank: int, message: Tensor) -> bool:
        """On rank 0, tell whether a worker's message is of this round, or a later one; keep, or drop, one that is not."""
        number, kind, nbytes = _header(message)
        if rank in self._attendance.present:
            # what it sent before it knew that it was late comes after it was let in
            return number >= self._round
        self._attendance.heard(rank)
        if self._counts_late and kind == _BALLOT:
            self._late_ballots[rank] = message[_HEADER : _HEADER + nbytes]
        return False

    def _take_late(self, block: Tensor) -> list[Tensor]:
        """The late ballots, each of a worker that casts no other in this vote."""
        kept, self._late_ballots = self._late_ballots, {}
        return [ballot.view(block.dtype) for _, ballot in sorted(kept.items()) if ballot.nbytes == block.nbytes]

    def _let_in(self) -> set[int]:
        """Give those that are back the state of the last boundary, if no round has been closed since; return who they are."""
        returning = [rank for rank in self._attendance.returning() if rank not in self._late_ballots]
        if not returning or self._round > self._boundary + 1:
            return set()
        self._send(returning, _DOWN, _STATE, torch.empty(0), self._boundary)  # as short as any block that they wait for
        self._start(returning, _CONTENT, self._state().numpy())
        for rank in returning:
            self._attendance.let_in(rank)
        return set(returning)

    def _hear(self, block: Tensor) -> None:
        """On a worker, fill `block` with rank 0's of this round."""
        message, pauses = self._memory(_HEADER + block.nbytes), self._pauses()
        request = self._mpi.Irecv(message.numpy(), 0, _DOWN)
        while not request.Test():
            next(pauses)
        number, kind, nbytes = _header(message)
        if kind == _STATE:
            while (found := self._poll(0, _CONTENT)) is None:
                next(pauses)
            self._round = number
            raise LeftBehind(found[1])
        if (number, nbytes) != (self._round, block.nbytes):
            raise self._confusion(0, message)
        block.view(torch.uint8)[:] = message[_HEADER:]
        self._spare = [message]

    # ---- messages ----

    def _send(self, ranks: Iterable[int], tag: int, kind: int, block: Tensor, number: int = -1) -> None:
        """Start to send a copy; nobody waits for it, since a stopped rank may never take it."""
        message = np.empty(_HEADER + block.nbytes, np.uint8)
        struct.pack_into("=qqq", message.data, 0, self._round if number < 0 else number, kind, block.nbytes)
        message[_HEADER:] = block.view(torch.uint8).numpy()
        self._start(ranks, tag, message)

    def _start(self, ranks: Iterable[int], tag: int, message: Any) -> None:
        done = set(MPI.Request.Testsome([request for request, _ in self._outbox]) or [])
        self._outbox = [sent for index, sent in enumerate(self._outbox) if index not in done]
        self._outbox += [(self._mpi.Isend(message, rank, tag), message) for rank in ranks]

    def _poll(self, rank: int, tag: int) -> tuple[int, Tensor] | None:
        """The next message of a rank, if all of it is there: the rank, and uint8[at least so many as were sent]."""
        if rank not in self._coming:
            # by name: MPICH 5.0 now and then loses a message that is awaited from any, where some ranks are on other nodes
            message = self._mpi.Improbe(rank, tag, self._status)
            if message is None:
                return None
            buffer = self._buffer(rank, self._status.Get_count(MPI.BYTE))
            self._coming[rank] = message.Irecv(buffer.numpy()), buffer
        return self._taken(rank) if self._coming[rank][0].Test() else None

    def _taken(self, rank: int) -> tuple[int, Tensor]:
        return rank, self._coming.pop(rank)[1]

    def _memory(self, nbytes: int) -> Tensor:
        for index, spare in enumerate(self._spare):
            if len(spare) == nbytes:
                return self._spare.pop(index)
        return torch.empty(nbytes, dtype=torch.uint8)

    def _buffer(self, rank: int, nbytes: int) -> Tensor:
        """Memory for a message of a rank, if it may have so many bytes."""
        limit = _HEADER + self._largest if self.rank == 0 else 2 * len(self._state()) + _ROOM
        if nbytes > limit:
            raise DisagreementError(
                f"rank {rank} sent {nbytes} bytes to rank {self.rank}, where at most {limit} can come: do all ranks run the same "
                f"program?"
            )
        return self._memory(nbytes)

    def _confusion(self, rank: int, message: Tensor) -> DisagreementError:
        number, kind, nbytes = _header(message)
        return DisagreementError(
            f"rank {rank} sent {nbytes} bytes of kind {kind} for round {number} to rank {self.rank}, which is in round "
            f"{self._round}: all ranks must call the same verbs in the same order"
        )

    def _pauses(self) -> Iterator[None]:
        return _naps() if self.patient else itertools.repeat(None)


class _Clock:
    """How long rank 0 has waited: of its own absence it counts no more than _GAP at once as others' lateness."""

    def __init__(self) -> None:
        self._seen, self.waited = time.monotonic(), 0.0

    def look(self) -> float:
        """Return the seconds until now."""
        now = time.monotonic()
        self.waited, self._seen = self.waited + min(now - self._seen, _GAP), now
        return self.waited


def _header(message: Tensor) -> tuple[int, int, int]:
    number, kind, nbytes = struct.unpack_from("=qqq", message.numpy().data)
    return number, kind, nbytes
