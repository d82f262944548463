"""n ranks as threads of one process, with one baton: only its holder runs, so that a run repeats to the bit.

A rank passes the baton on when it has to wait. If all wait, that is a deadlock, and an exception says who waits for whom.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from torch import Tensor

from ..errors import DeadlockError, RankFailure
from .base import Comm, Shared, verb_of

T = TypeVar("T")

_TAGS = 1 << 20  # so many tags has each communicator for itself
_RECOVERED = 1 << 40  # numbers of communicators after a death: beyond those of their parts


@dataclass(frozen=True)
class Message:
    """One message of a simulated run, in the order in which they were sent; a broadcast's are forwarded along a tree."""

    source: int
    dest: int
    tag: int
    nbytes: int

    @property
    def verb(self) -> str:
        """The verb of `Comm` that the message is part of."""
        return verb_of(self.tag % _TAGS)


class _Stopped(BaseException):
    """Another rank has failed."""


class _Killed(BaseException):
    """A rank dies."""


@dataclass(eq=False)
class _Receive:
    """A receive that waits for its message."""

    block: Tensor
    source: int
    tag: int
    done: bool = False

    def __str__(self) -> str:
        return f"rank {self.source}"


@dataclass(eq=False)
class _Sent:
    """A send: buffered, so it is done as soon as it is started."""

    done: bool = True


@dataclass
class _World:
    size: int
    log: list[Message] | None
    nodes: list[list[int]]
    failure: BaseException | None = None
    failed_rank: int = 0

    def __post_init__(self) -> None:
        self.turns = [threading.Semaphore(int(rank == 0)) for rank in range(self.size)]  # the baton: one is up
        self.mail: list[list[tuple[int, int, Tensor]]] = [[] for _ in range(self.size)]
        self.posted: list[list[_Receive]] = [[] for _ in range(self.size)]
        self.ready: list[Callable[[], bool] | None] = [lambda: True for _ in range(self.size)]  # None: has ended
        self.waiting: list[list[_Receive]] = [[] for _ in range(self.size)]
        self.memory: dict[tuple[int, ...], Tensor] = {}
        self.deaths = 0
        self.recovering: set[int] = set()  # ranks that ask who is left
        self.left: list[int] = []  # the last answer, and the deaths that it knows of
        self.known_deaths = 0

    @property
    def alive(self) -> list[int]:
        return [rank for rank in range(self.size) if self.ready[rank] is not None]

    def bury(self, rank: int) -> None:
        """Let a rank be dead, and the others go on."""
        self.deaths += 1
        self.ready[rank] = None
        self.pass_on(rank)

    def answered(self, rank: int) -> bool:
        """Tell whether a rank that asks who is left has its answer, which there is when all that are left ask."""
        if self.recovering >= set(self.alive):
            self.left, self.known_deaths, self.recovering = self.alive, self.deaths, set()
        return rank not in self.recovering

    def deliver(self, rank: int) -> None:
        """Match what has come for a rank with what it has asked for, each in order."""
        for receive in list(self.posted[rank]):
            for item in self.mail[rank]:
                source, tag, block = item
                if receive.tag == tag and receive.source == source:
                    if block.shape != receive.block.shape or block.dtype != receive.block.dtype:
                        raise ValueError(
                            f"rank {rank} expects {receive.block.dtype}{list(receive.block.shape)} from {receive}, but rank "
                            f"{source} sent {block.dtype}{list(block.shape)}: call a verb with one length and one dtype"
                        )
                    receive.block.copy_(block)
                    receive.done = True
                    self.mail[rank] = [other for other in self.mail[rank] if other is not item]
                    self.posted[rank].remove(receive)
                    break

    def pass_on(self, rank: int) -> None:
        """Give the baton to the next rank that can go on."""
        alive = [(rank + shift) % self.size for shift in range(1, self.size + 1)]
        alive = [other for other in alive if self.ready[other] is not None]
        for other in alive:
            ready = self.ready[other]
            try:
                able = ready is not None and ready()
            except ValueError as mismatch:  # found for the other rank, not by it
                self.fail(other, mismatch)
                return
            if able:
                self.turns[other].release()
                return
        if alive and self.failure is None:
            waits = (
                f"rank {other} waits for {', '.join(dict.fromkeys(str(r) for r in self.waiting[other] if not r.done))}"
                for other in sorted(alive)
            )
            ended = [str(other) for other in range(self.size) if self.ready[other] is None]
            gone = f"; ended: rank {', '.join(ended)}" if ended else ""
            self.fail(alive[0], DeadlockError("; ".join(waits) + gone))

    def fail(self, rank: int, failure: BaseException) -> None:
        if self.failure is None:
            self.failure, self.failed_rank = failure, rank
        for turn in self.turns:
            turn.release()

    def wait_for_baton(self, rank: int) -> None:
        self.turns[rank].acquire()
        if self.failure is not None:
            raise _Stopped


class SimulatedComm(Comm):
    """One of `simulate`'s ranks."""

    resilient: ClassVar[bool] = True

    def __init__(self, world: _World, rank: int) -> None:
        super().__init__(rank, world.size, world.nodes)
        self._world, self._place = world, rank
        self._ranks: Sequence[int] = range(world.size)
        self._number, self._parts, self._windows = 0, 0, 0
        self._deaths = 0  # that this communicator knows of

    def die(self) -> NoReturn:
        """End this rank; `simulate` returns None for it."""
        raise _Killed

    def survivors(self) -> "SimulatedComm":
        """Return the communicator of the ranks that are neither dead nor through with their body; Deserted as in MPI."""
        world = self._world
        world.recovering.add(self._place)
        self._until(lambda: world.answered(self._place))
        left = [self._ranks.index(place) for place in world.left if place in self._ranks]
        fresh = self._of(left, _RECOVERED + world.known_deaths)
        fresh._deaths = world.known_deaths
        fresh._succeeds(self, left)
        self.check_majority(left)
        return fresh

    def shared(self, words: int) -> Shared:
        """Allocate a tensor that the threads share."""
        self._windows += 1
        node = self.node
        assert isinstance(node, SimulatedComm)
        key = (self._number, self._windows, *node._ranks)
        return _Memory(node, self._world.memory.setdefault(key, torch.zeros((node.size, words), dtype=torch.uint64)))

    def _split(self, ranks: list[int]) -> "SimulatedComm":
        self._parts += 1
        return self._of(ranks, 64 * self._number + self._parts)

    def _of(self, ranks: list[int], number: int) -> "SimulatedComm":
        part = SimulatedComm(self._world, self._place)
        Comm.__init__(part, ranks.index(self.rank), len(ranks), self._nodes_of(ranks))
        part._ranks = [self._ranks[rank] for rank in ranks]
        part._number, part._deaths = number, self._deaths
        return part

    def _isend(self, block: Tensor, dest: int, tag: int) -> _Sent:
        if not 0 <= dest < self.size:
            raise ValueError(f"no rank {dest} among {self.size}")
        place, tag = self._ranks[dest], tag + _TAGS * self._number
        self._world.mail[place].append((self._place, tag, block.clone()))
        if self._world.log is not None:
            self._world.log.append(Message(self._place, place, tag, block.nbytes))
        return _Sent()

    def _irecv(self, block: Tensor, source: int, tag: int) -> _Receive:
        receive = _Receive(block, self._ranks[source], tag + _TAGS * self._number)
        self._world.posted[self._place].append(receive)
        return receive

    def _wait_all(self, requests: list[Any]) -> None:
        self._wait(requests, lambda: all(request.done for request in requests))

    def _wait_some(self, requests: list[Any]) -> list[int]:
        self._wait(requests, lambda: any(request.done for request in requests))
        return [i for i, request in enumerate(requests) if request.done]

    def _wait(self, requests: list[Any], enough: Callable[[], bool]) -> None:
        world = self._world

        def done() -> bool:
            world.deliver(self._place)
            return enough()

        world.waiting[self._place] = [request for request in requests if not request.done]
        self._until(lambda: done() or self._broken)
        if not done():
            raise RankFailure(f"rank {self.rank} of {self.size}: another rank has died")

    @property
    def _broken(self) -> bool:
        return self._deaths < self._world.deaths

    def _until(self, ready: Callable[[], bool]) -> None:
        """Leave the baton to others until something is so."""
        if ready():
            return
        world = self._world
        world.ready[self._place] = ready
        world.pass_on(self._place)
        world.wait_for_baton(self._place)


class _Memory(Shared):
    """A tensor that the ranks of a simulated machine hold in common."""

    def __init__(self, node: SimulatedComm, rows: Tensor) -> None:
        self._node, self.rows = node, rows

    def fence(self) -> None:
        self._node.barrier()


def simulate(
    size: int, body: Callable[..., T], *args: Any, log: list[Message] | None = None, per_node: int | None = None
) -> list[T]:
    """Run `body(comm, *args)` as `size` ranks in this process and return their results, rank by rank.

    Args:
        size: the number of ranks, at least 1.
        body: what each rank does; every rank gets the same `args`.
        args: further arguments of `body`.
        log: a list that receives every `Message`, to look at or to draw.
        per_node: ranks of one machine, one machine after the other; by default all are on one.

    Raises:
        DeadlockError: all ranks wait for one another; the message says who waits for whom.
        Exception: whatever a rank raised first, with a note of its rank; the other ranks are stopped.

    A rank that calls `comm.die()` has the result None, and the others get a RankFailure.

    >>> import torch
    >>> simulate(3, lambda comm: comm.allreduce(torch.tensor([comm.rank])).item())
    [3, 3, 3]
    """
    if not isinstance(size, int):
        raise TypeError(
            f"simulate wants the number of ranks first, as in simulate(4, program); got {type(size).__name__}"
        )
    if size < 1:
        raise ValueError(f"a simulation needs at least 1 rank, got {size}")
    per_node = per_node or size
    world = _World(size, log, [list(range(first, min(first + per_node, size))) for first in range(0, size, per_node)])
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            world.wait_for_baton(rank)
            results[rank] = body(SimulatedComm(world, rank), *args)
            world.ready[rank] = None
            world.pass_on(rank)
        except _Stopped:
            return
        except _Killed:
            world.bury(rank)
        except BaseException as failure:  # it is raised again, in the caller's thread
            world.fail(rank, failure)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as interrupt:
        world.fail(0, interrupt)
        raise
    if world.failure is not None:
        if not isinstance(world.failure, DeadlockError):
            world.failure.add_note(f"on rank {world.failed_rank} of {size} simulated ranks")
        raise world.failure
    return results
