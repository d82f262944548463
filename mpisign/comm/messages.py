"""Messages of numbered rounds: what the server and the workers of a quorum say to each other."""

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DisagreementError
from .mpi import MPI, naps

UP, DOWN, CONTENT = 8192, 8193, 8194  # tags
BALLOT, BLOCK, STATE = range(3)  # what a message carries
HEADER = 24  # bytes: int64 number of the round, what the message carries, and bytes of that


class Messages:
    """Sends copies that nobody waits for, and takes one message at a time of each rank, by the name of its rank.

    Args:
        mpi: the mpi4py communicator.
        patient: whether to sleep while waiting.

    Attributes:
        round: the number of the present one; whoever begins a round counts it.
    """

    def __init__(self, mpi: MPI.Intracomm, patient: bool) -> None:
        self.round = 0
        self._mpi, self._patient = mpi, patient
        self._coming: dict[int, tuple[Any, Tensor]] = {}  # messages of which the bytes are under way
        self._spare: list[Tensor] = []
        self._status = MPI.Status()
        self._outbox: list[tuple[Any, Any]] = []  # alive until sent

    def send(self, ranks: Iterable[int], tag: int, kind: int, block: Tensor, number: int = -1) -> None:
        """Start to send a copy, of this round or another; nobody waits for it, since a stopped rank may never take it."""
        message = np.empty(HEADER + block.nbytes, np.uint8)
        struct.pack_into("=qqq", message.data, 0, self.round if number < 0 else number, kind, block.nbytes)
        message[HEADER:] = block.view(torch.uint8).numpy()
        self.start(ranks, tag, message)

    def start(self, ranks: Iterable[int], tag: int, content: Any) -> None:
        """Start to send a NumPy array as it is, without a header; it must not change any more."""
        done = set(MPI.Request.Testsome([request for request, _ in self._outbox]) or [])
        self._outbox = [sent for index, sent in enumerate(self._outbox) if index not in done]
        self._outbox += [(self._mpi.Isend(content, rank, tag), content) for rank in ranks]

    def expect(self, rank: int, tag: int, nbytes: int) -> Any:
        """Give MPI memory for the next message of a rank, and return the request; that costs less than to look for it."""
        if rank not in self._coming:
            buffer = self._memory(nbytes)
            self._coming[rank] = self._mpi.Irecv(buffer.numpy(), rank, tag), buffer
        return self._coming[rank][0]

    def take(self, rank: int) -> Tensor:
        """Return the message of a rank, which was expected, and has come."""
        return self._coming.pop(rank)[1]

    def poll(self, rank: int, tag: int, most: int) -> Tensor | None:
        """Return the next message of a rank, uint8[at least so many as were sent], if all of it is there.

        Errors: DisagreementError for one of more than `most` bytes, for which no memory was given.
        """
        if rank not in self._coming:
            # by name: MPICH 5.0 now and then loses a message that is awaited from any, where some ranks are on other nodes
            message = self._mpi.Improbe(rank, tag, self._status)
            if message is None:
                return None
            buffer = self._buffer(rank, self._status.Get_count(MPI.BYTE), most)
            self._coming[rank] = message.Irecv(buffer.numpy()), buffer
        return self.take(rank) if self._coming[rank][0].Test() else None

    def reuse(self, messages: Iterable[Tensor]) -> None:
        """Take the memory of these, and no others, for the next ones."""
        self._spare = list(messages)

    def pauses(self) -> Iterator[None]:
        """Yield between two looks at what has come."""
        return naps() if self._patient else itertools.repeat(None)

    def confusion(self, rank: int, message: Tensor) -> DisagreementError:
        """Return the error that a message of a rank is not of this round."""
        number, kind, nbytes = header(message)
        return DisagreementError(
            f"rank {rank} sent {nbytes} bytes of kind {kind} for round {number} to rank {self._mpi.Get_rank()}, which is in "
            f"round {self.round}: all ranks must call the same verbs in the same order"
        )

    def _memory(self, nbytes: int) -> Tensor:
        for index, spare in enumerate(self._spare):
            if len(spare) == nbytes:
                return self._spare.pop(index)
        return torch.empty(nbytes, dtype=torch.uint8)

    def _buffer(self, rank: int, nbytes: int, most: int) -> Tensor:
        if nbytes > most:
            raise DisagreementError(
                f"rank {rank} sent {nbytes} bytes to rank {self._mpi.Get_rank()}, where at most {most} can come: do all ranks "
                f"run the same program?"
            )
        return self._memory(nbytes)


def header(message: Tensor) -> tuple[int, int, int]:
    """Return the number of a message's round, what it carries, and bytes of that."""
    number, kind, nbytes = struct.unpack_from("=qqq", message.numpy().data)
    return number, kind, nbytes
