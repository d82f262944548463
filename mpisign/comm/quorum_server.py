"""Rank 0's side of a quorum: it waits for blocks until a deadline, and lets in those that are back."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .attendance import Attendance
from .deadline import Deadline
from .messages import BALLOT, BLOCK, CONTENT, DOWN, HEADER, STATE, UP, Messages, header
from .mpi import MPI

_GAP = 0.1  # seconds: rank 0 counts no more of its own absence as a worker's lateness


class Server:
    """What `QuorumComm` does on rank 0.

    Args:
        messages: between this rank and the workers.
        attendance: of the workers.
        deadline: how long to wait for the last of them.
        size: the number of all ranks.
        quorum: how many must be there at the deadline, this one among them.
        counts_late: whether late ballots are kept for the next vote.
    """

    def __init__(
        self,
        messages: Messages,
        attendance: Attendance,
        deadline: Deadline,
        size: int,
        quorum: int,
        counts_late: bool,
    ) -> None:
        self._messages, self._attendance, self._deadline = messages, attendance, deadline
        self._size, self._quorum, self._counts_late = size, quorum, counts_late
        self._state: Callable[[], Tensor] = lambda: torch.empty(0, dtype=torch.uint8)
        self._boundary = 0  # rounds at the last boundary
        self._closed_at = time.monotonic()
        self._late_ballots: dict[int, Tensor] = {}  # to be counted in the next vote
        self._largest = 0  # bytes of a block

    def open(self) -> None:
        """Count rank 0's own time from here on."""
        self._closed_at = time.monotonic()

    def readmit(self, state: Callable[[], Tensor]) -> None:
        """Give those that are back the present state, and wait for them from here on."""
        self._state, self._boundary = state, self._messages.round
        if self._attendance.away:
            for rank in self._attendance.away:
                if (message := self._poll(rank)) is not None:
                    self._is_in_time(rank, message)
            self._let_in()

    def rows(self, block: Tensor, kind: int) -> tuple[Tensor, list[int]]:
        """Return [size, k] with 0 for those that are away, and who is not."""
        rows, heard = torch.zeros((self._size, len(block)), dtype=block.dtype), [0]
        rows[0] = block
        for arrived in self.arrivals(block, kind, self._size):
            for rank, payload in arrived:
                rows[rank] = payload
                heard.append(rank)
        return rows, sorted(heard)

    def down(self, block: Tensor) -> None:
        """Send a block to all that are there."""
        self._messages.send(sorted(self._attendance.present), DOWN, BLOCK, block)
        self._closed_at = time.monotonic()

    def arrivals(self, block: Tensor, kind: int, buffers: int) -> Iterator[list[tuple[int, Tensor]]]:
        """Yield who has sent what, about `buffers` at a time, until the round is closed; valid until the next."""
        self._largest = max(self._largest, block.nbytes)
        missing, came, pauses, clock = set(self._attendance.present), 1, self._messages.pauses(), _Clock()
        # who takes as long again as rank 0 itself has since the last round is in time
        limit = max(self._deadline.seconds, time.monotonic() - self._closed_at)
        ready = list[tuple[int, Tensor]]()
        requests = self._expect(missing, buffers)
        if len(missing) <= buffers:  # one look at all costs least
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
            if came >= self._quorum:
                self._attendance.close_without(missing, clock.waited)
                break
            missing |= self._let_in()
        else:
            if kind == BALLOT and came > 1:
                self._deadline.note(clock.waited)
        if kind == BALLOT:
            self._attendance.vote_is_over()
        if ready:
            yield self._handed_out(ready, block)

    def take_late(self, block: Tensor) -> list[Tensor]:
        """Return the late ballots, each of a worker that casts no other in this vote."""
        kept, self._late_ballots = self._late_ballots, {}
        return [ballot.view(block.dtype) for _, ballot in sorted(kept.items()) if ballot.nbytes == block.nbytes]

    def _expect(self, missing: set[int], most: int) -> list[Any]:
        """Give MPI memory for messages of some of those that are missing, and return their requests."""
        return [self._messages.expect(rank, UP, HEADER + self._largest) for rank in sorted(missing)[:most]]

    def _poll(self, rank: int) -> Tensor | None:
        return self._messages.poll(rank, UP, HEADER + self._largest)

    def _handed_out(self, messages: list[tuple[int, Tensor]], block: Tensor) -> list[tuple[int, Tensor]]:
        """The blocks in messages, whose memory is used again for the next ones."""
        self._messages.reuse(message for _, message in messages if len(message) == HEADER + self._largest)
        return [(rank, message[HEADER : HEADER + block.nbytes].view(block.dtype)) for rank, message in messages]

    def _arrived(self, missing: set[int], kind: int, block: Tensor) -> list[tuple[int, Tensor]]:
        """The messages of this round that have come from those that are missing; takes what comes from others, too."""
        arrived = list[tuple[int, Tensor]]()
        for rank in sorted(missing.union(self._attendance.away)):
            message = self._poll(rank)
            if message is None or not self._is_in_time(rank, message):
                continue
            if header(message) != (self._messages.round, kind, block.nbytes):
                raise self._messages.confusion(rank, message)
            arrived.append((rank, message))
        return arrived

    def _is_in_time(self, rank: int, message: Tensor) -> bool:
        """Tell whether a worker's message is of this round, or a later one; keep, or drop, one that is not."""
        number, kind, nbytes = header(message)
        if rank in self._attendance.present:
            # what it sent before it knew that it was late comes after it was let in
            return number >= self._messages.round
        self._attendance.heard(rank)
        if self._counts_late and kind == BALLOT:
            self._late_ballots[rank] = message[HEADER : HEADER + nbytes]
        return False

    def _let_in(self) -> set[int]:
        """Give those that are back the state of the last boundary, if no round has been closed since; return who they are."""
        returning = [rank for rank in self._attendance.returning() if rank not in self._late_ballots]
        if not returning or self._messages.round > self._boundary + 1:
            return set()
        self._messages.send(
            returning, DOWN, STATE, torch.empty(0), self._boundary
        )  # as short as any block that they wait for
        self._messages.start(returning, CONTENT, self._state().numpy())
        for rank in returning:
            self._attendance.let_in(rank)
        return set(returning)


class _Clock:
    """How long rank 0 has waited: of its own absence it counts no more than _GAP at once as others' lateness."""

    def __init__(self) -> None:
        self._seen, self.waited = time.monotonic(), 0.0

    def look(self) -> float:
        """Return the seconds until now."""
        now = time.monotonic()
        self.waited, self._seen = self.waited + min(now - self._seen, _GAP), now
        return self.waited
