"""A network that loses messages between neighbours, by seeded chance, to see what a method does about it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor

from .. import seeding
from .base import Comm, Pending, Shared

T = TypeVar("T")


class LossyComm(Comm):
    """Another communicator, but each message of `post` and `exchange` is lost with probability p at its receiver.

    The receiver learns that it was lost: its source is missing in what `wait` returns. All other verbs are reliable,
    and traffic counts what was sent. Each rank's losses are a stream of their own, in the order of posts and sources.

    Args:
        comm: carries the messages.
        probability: p in [0, 1].
        seed: names the losses.

    Attributes:
        lost: how many messages this rank has lost.
    """

    def __init__(self, comm: Comm, probability: float, seed: int = 0) -> None:
        if not 0 <= probability <= 1:
            raise ValueError(f"the probability of losing a message must be in [0, 1], got {probability}")
        super().__init__(comm.rank, comm.size, comm.nodes)
        self._succeeds(comm, range(comm.size))
        self.probability, self.lost = probability, 0
        self._inner, self._seed = comm, seed
        self._random = seeding.generator(seed, comm.rank, "losses")

    def post(
        self, outbox: Mapping[int, Tensor], channel: int = 0, sources: Iterable[int] | Mapping[int, int] | None = None
    ) -> Pending:
        """Start to send and receive as every communicator does; `wait` leaves out what is lost."""
        expected = sources if isinstance(sources, Mapping) else list(outbox if sources is None else sources)
        lost = {source for source in sorted(expected) if self._random.random() < self.probability}
        self.lost += len(lost)
        return _Lossy(self._inner.post(outbox, channel, expected), lost)

    def state(self) -> dict[str, Any]:
        """Return where the stream of losses stands."""
        return {"lost": self.lost, "random": self._random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the stream of losses."""
        self.lost, self._random.bit_generator.state = state["lost"], state["random"]

    def aside(self, task: Callable[[], T]) -> Callable[[], T]:
        """As the communicator that carries the messages."""
        return self._inner.aside(task)

    def shared(self, words: int) -> Shared:
        """As the communicator that carries the messages."""
        return self._inner.shared(words)

    def _split(self, ranks: list[int]) -> Comm:
        return LossyComm(self._inner._split(ranks), self.probability, self._seed)

    def _isend(self, block: Tensor, dest: int, tag: int) -> Any:
        return self._inner._isend(block, dest, tag)

    def _irecv(self, block: Tensor, source: int, tag: int) -> Any:
        return self._inner._irecv(block, source, tag)

    def _wait_all(self, requests: list[Any]) -> None:
        self._inner._wait_all(requests)

    def _wait_some(self, requests: list[Any]) -> list[int]:
        return self._inner._wait_some(requests)


class _Lossy(Pending):
    """Messages of which some will be lost."""

    def __init__(self, pending: Pending, lost: set[int]) -> None:
        self._pending, self._lost = pending, lost

    def wait(self) -> dict[int, Tensor]:
        return {source: block for source, block in self._pending.wait().items() if source not in self._lost}
