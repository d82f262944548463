"""All that an algorithm may ask of the other ranks: a few verbs on one-dimensional tensors."""

import abc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from .. import errors
from ..errors import MpisignError
from .blocks import check, check_out, check_reduction, combine
from .lateness import Lateness
from .membership import Membership

T = TypeVar("T")
E = TypeVar("E", bound=MpisignError)

_SMALL = 4096  # bytes: below it the fewest messages win, above it the fewest bytes

_BCAST, _GATHER, _ALLTOALL, _DIRECT, _POST = range(5)
_COLLECT = 1024  # collects are numbered, so that a fast sender's next ballot is not taken for a slow one's present one


def verb_of(tag: int) -> str:
    """Return the verb that sends messages with this tag."""
    return "collect" if tag >= _COLLECT else ("bcast", "gather", "alltoall", "send", "post")[min(tag, _POST)]


@dataclass
class Traffic:
    """What a rank has sent and received through a communicator, in bytes of payload and messages, and the time it took.

    A broadcast counts at its root once for each receiver, however the transport forwards it: the figures are those of
    the algorithm, and the same under every MPI and in the simulator.
    """

    sent: int = 0
    received: int = 0
    messages: int = 0
    seconds: float = 0.0


class Pending:
    """Messages between neighbours under way; `wait` returns them as {source: block}."""

    def __init__(self, comm: "Comm", inbox: dict[int, Tensor], outbox: Sequence[Tensor], requests: list[Any]) -> None:
        self._comm, self._inbox, self._requests = comm, inbox, requests
        self._outbox = outbox  # alive until sent
        comm._under_way.add(self)  # even if the caller forgets it: the transport still reads and writes its blocks

    def wait(self) -> dict[int, Tensor]:
        """Block until all have arrived and all own ones have left."""
        self._comm._wait_all(self._requests)
        self._comm._under_way.discard(self)
        return self._inbox


class Shared(abc.ABC):
    """Memory that all ranks of one machine see.

    Attributes:
        rows: uint64[k, words], a row for each of the machine's k ranks, in their order; each writes where it likes.
    """

    rows: Tensor

    @abc.abstractmethod
    def fence(self) -> None:
        """Wait for all ranks of the machine: what they wrote before is seen by all after."""


class Comm(Membership, Lateness, abc.ABC):
    """Ranks 0 … size−1 and the verbs between them. Every rank calls the same verbs in the same order.

    Blocks are one-dimensional, contiguous CPU tensors of equal length on all ranks, of dtype uint64, int64, float32,
    float64 or uint8. A transport implements the underscored methods. Who the ranks are, and what becomes of them when some
    have died, is `Membership`'s; who is late, `Lateness`'s.

    Attributes:
        traffic: what this rank has sent and received.
        heard: the ranks whose blocks the last allgather, allreduce or agreement was made of; all, where none is late.
    """

    def __init__(self, rank: int, size: int, nodes: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(rank, size, nodes)
        self.heard = tuple(range(size))
        self.traffic = Traffic()
        self._collects = 0
        self._under_way: set[Pending] = set()
        self._node: Comm | None = None

    # ---- verbs ----

    def bcast(self, block: Tensor, root: int = 0) -> Tensor:
        """Fill `block` on all ranks with root's, in place, and return it."""
        started = self._begin(block, root)
        self._bcast(block, root)
        copies = self.size - 1 if self.rank == root else 0
        self._count(started, block, sent=copies, received=int(self.rank != root))
        return block

    def gather(self, block: Tensor, root: int = 0) -> Tensor | None:
        """[k] on each rank -> [size, k] on root, None elsewhere."""
        started = self._begin(block, root)
        if self.rank != root:
            self._wait_all([self._isend(block, root, _GATHER)])
            self._count(started, block, sent=1)
            return None
        blocks = torch.empty((self.size, len(block)), dtype=block.dtype)
        blocks[root] = block
        self._wait_all([self._irecv(blocks[rank], rank, _GATHER) for rank in range(self.size) if rank != root])
        self._count(started, block, received=self.size - 1)
        return blocks

    def collect(self, block: Tensor, root: int = 0, buffers: int = 8) -> Iterator[list[Tensor]]:
        """On root, yield the ranks' blocks as they arrive, its own first; elsewhere send and yield nothing.

        A yielded list is valid until the next one: root holds no more than `buffers` blocks of others at a time.
        Exhaust it: the verb is over when the iterator is.
        """
        started = self._begin(block, root)
        tag = _COLLECT + self._collects % 1024
        self._collects += 1
        if self.rank != root:
            self._wait_all([self._isend(block, root, tag)])
            self._count(started, block, sent=1)
            return
        missing = self.size - 1
        ring = [torch.empty_like(block) for _ in range(min(buffers, missing))]
        # from one rank each: MPICH 5.0 now and then loses a message that is awaited from any, where some ranks are on other nodes
        sources = (rank for rank in range(self.size) if rank != root)
        requests = [self._irecv(slot, source, tag) for slot, source in zip(ring, sources, strict=False)]
        unposted = missing - len(requests)
        self._count(started, block, received=missing)
        yield [block]
        while missing:
            started = time.perf_counter()
            done = self._wait_some(requests) if unposted else self._all_of(requests)
            self.traffic.seconds += time.perf_counter() - started
            yield [ring[i] for i in done]
            missing -= len(done)
            again, unposted = done[:unposted], max(0, unposted - len(done))
            for i in again:
                requests[i] = self._irecv(ring[i], next(sources), tag)
            for i in sorted(set(done) - set(again), reverse=True):
                del requests[i], ring[i]

    def _all_of(self, requests: list[Any]) -> list[int]:
        self._wait_all(requests)
        return list(range(len(requests)))

    def allgather(self, block: Tensor, out: Tensor | None = None) -> Tensor:
        """[k] on each rank -> [size, k] on all; in `out`, where that is given."""
        started = self._begin(block)
        blocks = torch.empty((self.size, len(block)), dtype=block.dtype) if out is None else out
        check_out(blocks, (self.size, len(block)), block.dtype)
        self._allgather(block, blocks)
        self._count(started, block, sent=self.size - 1, received=self.size - 1)
        return blocks

    def alltoall(self, blocks: Tensor, out: Tensor | None = None) -> Tensor:
        """[size, k] -> [size, k]: row r goes to rank r, and row r of the result, or of `out`, came from rank r."""
        if blocks.dim() != 2 or len(blocks) != self.size:
            raise ValueError(f"alltoall needs a block for each of {self.size} ranks, got shape {tuple(blocks.shape)}")
        started = self._begin(blocks.view(-1))
        result = torch.empty_like(blocks) if out is None else out
        check_out(result, tuple(blocks.shape), blocks.dtype)
        self._alltoall(blocks, result)
        self._count(started, blocks[0], sent=self.size - 1, received=self.size - 1)
        return result

    def allreduce(self, block: Tensor, op: Literal["sum", "min", "max"] = "sum") -> Tensor:
        """Replace `block` by the sum, minimum or maximum over ranks, in place, and return it.

        Ranks are added in order 0, 1, 2 …, so that floats give the same bits under every transport.
        """
        check_reduction(block, op)
        if self.size == 1:
            return block
        if block.nbytes * self.size <= _SMALL * 16:
            return block.copy_(combine(self.allgather(block), op))
        share = -(-len(block) // self.size)
        padded = torch.zeros(share * self.size, dtype=block.dtype)
        padded[: len(block)] = block
        mine = combine(self.alltoall(padded.view(self.size, share)), op)
        return block.copy_(self.allgather(mine).view(-1)[: len(block)])

    def send(self, block: Tensor, dest: int) -> None:
        """Send a block to one rank, which must receive it; a message between the same two keeps its order."""
        started = self._begin(block, dest)
        self._wait_all([self._isend(block, dest, _DIRECT)])
        self._count(started, block, sent=1)

    def receive(self, block: Tensor, source: int) -> Tensor:
        """Fill `block` with what `source` sends, in place, and return it."""
        started = self._begin(block, source)
        self._wait_all([self._irecv(block, source, _DIRECT)])
        self._count(started, block, received=1)
        return block

    def post(
        self, outbox: Mapping[int, Tensor], channel: int = 0, sources: Iterable[int] | Mapping[int, int] | None = None
    ) -> Pending:
        """Start to send a block to each neighbour, and to receive one of the same length from each; returns at once.

        Neighbours must be symmetric: i posts to j where j posts to i. Where they are not, `sources` says who sends, and
        {source: length} also how much. The blocks must not change until `wait`.
        """
        started = time.perf_counter()
        for block in outbox.values():
            check(block)
        tag = _POST + channel
        first = next(iter(outbox.values()), torch.empty(0))
        expected = outbox if sources is None else sources
        lengths = sources if isinstance(sources, Mapping) else {r: len(outbox.get(r, first)) for r in expected}
        inbox = {rank: torch.empty(length, dtype=first.dtype) for rank, length in lengths.items()}
        requests = [self._irecv(block, rank, tag) for rank, block in inbox.items()]
        requests += [self._isend(block, rank, tag) for rank, block in outbox.items()]
        for block in outbox.values():
            self._count(started, block, sent=1)
            started = time.perf_counter()
        for block in inbox.values():
            self._count(started, block, received=1)
            started = time.perf_counter()
        return Pending(self, inbox, list(outbox.values()), requests)

    def exchange(self, outbox: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Swap a block with each neighbour: `post(outbox).wait()`. No order of ranks can deadlock it."""
        return self.post(outbox).wait()

    def barrier(self) -> None:
        """Wait for all ranks, without taking the processor from those that compute."""
        self._allgather(torch.zeros(1, dtype=torch.int64), torch.empty((self.size, 1), dtype=torch.int64))

    def aside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Let a task that calls verbs run beside the caller's computation, and return what waits for its result.

        Tasks run one after another, in the order in which they were given; so all ranks must give them, and wait for
        them, in the same order, and none may call a verb itself before it has waited for all. A transport without
        threads runs a task when it is waited for.
        """
        results: list[T] = []

        def wait() -> T:
            if not results:
                results.append(task())
            return results[0]

        return wait

    # ---- parts ----

    def split(self, color: int) -> "Comm":
        """Return a communicator of the ranks that gave the same color, numbered in their order here. Collective.

        Its traffic counts here too.
        """
        gathered = torch.empty((self.size, 1), dtype=torch.int64)
        self._allgather(torch.tensor([color], dtype=torch.int64), gathered)
        colors = gathered.view(-1).tolist()
        ranks = [rank for rank, other in enumerate(colors) if other == color]
        part = self._split(ranks)
        part._succeeds(self, ranks)
        return part

    def _succeeds(self, before: "Comm", ranks: Sequence[int]) -> None:
        """Take over from a communicator of which these ranks are part, or left."""
        self.traffic, self.founders = before.traffic, before.founders
        self.members = tuple(before.members[rank] for rank in ranks)

    @property
    def node(self) -> "Comm":
        """The communicator of this rank's machine; collective the first time."""
        if self._node is None:
            self._node = self.split(next(m for m, ranks in enumerate(self.nodes) if self.rank in ranks))
        return self._node

    def dismiss(self) -> None:
        """Agree that all are done: a rank that dies from here on is not missed. Collective."""
        self.barrier()

    def state(self) -> dict[str, Any]:
        """Return what later messages depend on beside what is sent; nothing, where a network is as it should be."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""

    @abc.abstractmethod
    def shared(self, words: int) -> Shared:
        """Allocate memory that the ranks of one machine share, 0 at first. Collective."""

    # ---- agreement ----

    def agree(self, number: int) -> bool:
        """Tell, on all ranks alike, whether every rank gave the same number (63 bits)."""
        numbers = self.allgather(torch.tensor([number], dtype=torch.int64))
        return bool((numbers == numbers[0]).all())

    def insist(self, number: int, otherwise: MpisignError) -> None:
        """Raise `otherwise`, on all ranks, unless every rank gave the same number (63 bits)."""
        if not self.agree(number):
            raise self.alike(otherwise)

    def together(self, local: Callable[[], T], otherwise: type[MpisignError] = MpisignError) -> T:
        """Return what this rank's `local()` gives; where it raises on any rank, raise on all.

        `local` must not talk to other ranks. What it raises that is no MpisignError becomes one of type `otherwise`.
        """
        problem, result = None, None
        try:
            result = local()
        except MpisignError as error:
            problem = error
        except Exception as error:  # whatever it is, it must not happen on one rank alone
            problem = otherwise(f"{type(error).__name__}: {error}")
        self.raise_together(problem)
        return cast(T, result)

    def raise_together(self, error: MpisignError | None) -> None:
        """Raise on all ranks the error of the lowest rank that has one, so that none is left waiting."""
        failed = self.allgather(torch.tensor([error is not None], dtype=torch.int64)).view(-1)
        if not failed.any():
            return
        source = int(failed.argmax())
        text = f"{type(error).__name__}\n{error}".encode() if self.rank == source else b""
        length = self.bcast(torch.tensor([len(text)], dtype=torch.int64), source)
        message = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == source:
            message[:] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        name, _, reason = bytes(self.bcast(message, source).tolist()).decode().partition("\n")
        if self.rank != source or error is None:
            error = getattr(errors, name, MpisignError)(reason)
        raise self.alike(error)

    def alike(self, error: E) -> E:
        """Return an error that every rank raises at this place, marked as such: the first rank reports it. Collective."""
        self.all_know()
        error.everywhere, error.speaks = True, self.rank == 0
        return error

    # ---- the transport ----

    @abc.abstractmethod
    def _isend(self, block: Tensor, dest: int, tag: int) -> Any:
        """Start a send; `block` is alive and unchanged until the request is waited for."""

    @abc.abstractmethod
    def _irecv(self, block: Tensor, source: int, tag: int) -> Any:
        """Start a receive into `block`."""

    @abc.abstractmethod
    def _wait_all(self, requests: list[Any]) -> None:
        """Block until all are done."""

    @abc.abstractmethod
    def _split(self, ranks: list[int]) -> "Comm":
        """Return a communicator of these ranks, in ascending order, this one among them; all ranks call it together."""

    @abc.abstractmethod
    def _wait_some(self, requests: list[Any]) -> list[int]:
        """Block until at least one is done, and return the indices of all that are, in order."""

    # ---- collectives out of messages; a transport may have better ones ----

    def _bcast(self, block: Tensor, root: int) -> None:
        """Along a binomial tree: log2(size) rounds."""
        position, bit = (self.rank - root) % self.size, 1
        while bit < self.size and not position & bit:
            bit <<= 1
        if position:
            self._wait_all([self._irecv(block, (self.rank - bit) % self.size, _BCAST)])
        sends = []
        while bit := bit >> 1:
            if position + bit < self.size:
                sends.append(self._isend(block, (self.rank + bit) % self.size, _BCAST))
        self._wait_all(sends)

    def _alltoall(self, blocks: Sequence[Tensor] | Tensor, result: Tensor) -> None:
        result[self.rank] = blocks[self.rank]
        others = [(self.rank + shift) % self.size for shift in range(1, self.size)]
        requests = [self._irecv(result[rank], rank, _ALLTOALL) for rank in others]
        self._wait_all(requests + [self._isend(blocks[rank], rank, _ALLTOALL) for rank in others])

    def _allgather(self, block: Tensor, blocks: Tensor) -> None:
        if block.nbytes * self.size > _SMALL:
            Comm._alltoall(self, [block] * self.size, blocks)
            return
        blocks[self.rank] = block
        if self.rank:
            self._wait_all([self._isend(block, 0, _GATHER)])
        else:
            self._wait_all([self._irecv(blocks[rank], rank, _GATHER) for rank in range(1, self.size)])
        self._bcast(blocks.view(-1), 0)

    # ---- checks and counts ----

    def _begin(self, block: Tensor, partner: int = 0) -> float:
        check(block)
        if not 0 <= partner < self.size:
            raise ValueError(f"no rank {partner} among {self.size}: ranks are 0 to {self.size - 1}")
        return time.perf_counter()

    def _count(self, started: float, block: Tensor, sent: int = 0, received: int = 0) -> None:
        self.traffic.sent += sent * block.nbytes
        self.traffic.received += received * block.nbytes
        self.traffic.messages += sent
        self.traffic.seconds += time.perf_counter() - started
