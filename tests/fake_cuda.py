"""A GPU that takes notes: streams, events, and memory that knows who touched it when, so that races are found without one.

Each actor, the host or a stream, has a clock, and knows how far the others were when it last waited for them. Two accesses to the
same memory, one of them a write, must be ordered: who comes second has waited for the first, directly or through others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

HOST = "host"


class Race(AssertionError):
    """Two accesses that nothing orders."""


class FakeEvent:
    def __init__(self, gpu: "FakeCuda", known: dict[str, int]) -> None:
        self._gpu, self.known = gpu, known

    def synchronize(self) -> None:
        self._gpu.waits.append("host")
        self._gpu.learn(HOST, self.known)


class FakeStream:
    def __init__(self, gpu: "FakeCuda", name: str) -> None:
        self._gpu, self.name = gpu, name

    def record_event(self) -> FakeEvent:
        return FakeEvent(self._gpu, self._gpu.tick(self.name))

    def wait_event(self, event: FakeEvent) -> None:
        self._gpu.waits.append(self.name)
        self._gpu.learn(self.name, event.known)


class FakeCuda:
    """Stands for `torch.cuda`.

    Args:
        deaf: actors that forget to wait; a test of the tests.
    """

    def __init__(self, deaf: tuple[str, ...] = ()) -> None:
        self.clocks: dict[str, dict[str, int]] = {HOST: {HOST: 0}}
        self.waits: list[str] = []
        self._deaf, self._streams = deaf, 0
        self.main = FakeStream(self, "main")
        self._now = [self.main]

    def Stream(self, device: object) -> FakeStream:  # noqa: N802 - torch's name
        self._streams += 1
        return FakeStream(self, f"side {self._streams}")

    def current_stream(self, device: object = None) -> FakeStream:
        return self._now[-1]

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self._now.append(stream)
        try:
            yield
        finally:
            self._now.pop()

    def tick(self, actor: str) -> dict[str, int]:
        """Let an actor do one thing, which the host has told it to do by now."""
        own = self.clocks.setdefault(actor, {})
        if actor != HOST:
            merge(own, self.clocks[HOST])
        own[actor] = own.get(actor, 0) + 1
        return dict(own)

    def learn(self, actor: str, known: dict[str, int]) -> None:
        if actor.split()[0] not in self._deaf:
            merge(self.clocks.setdefault(actor, {}), known)


def merge(clock: dict[str, int], other: dict[str, int]) -> None:
    for name, time in other.items():
        clock[name] = max(clock.get(name, 0), time)


class FakeBlock:
    """Memory of the host or of the device, as far as `Staging` and votes use it."""

    dtype = torch.uint64

    def __init__(self, gpu: FakeCuda, name: str, on_device: bool, length: int = 4) -> None:
        self.gpu, self.name, self.on_device, self._length = gpu, name, on_device, length
        self._writes: list[tuple[str, int]] = []
        self._reads: list[tuple[str, int]] = []
        self.recorded: list[str] = []

    def __len__(self) -> int:
        return self._length

    def view(self, *_: object) -> "FakeBlock":
        return self

    def record_stream(self, stream: FakeStream) -> None:
        self.recorded.append(stream.name)

    def copy_(self, source: "FakeBlock", non_blocking: bool = False) -> "FakeBlock":
        actor = self.gpu.current_stream().name if self.on_device or source.on_device else HOST
        source.touch(actor)
        self.touch(actor, writes=True)
        return self

    def touch(self, actor: str, writes: bool = False) -> None:
        """Note an access, and raise Race where an earlier one may still be going on."""
        known = self.gpu.tick(actor)
        for who, time in self._writes + (self._reads if writes else []):
            if known.get(who, 0) < time:
                raise Race(f"{actor} {'writes' if writes else 'reads'} {self.name}, which {who} may still use")
        (self._writes if writes else self._reads).append((actor, known[actor]))


def pinned(numel: int, dtype: Any) -> torch.Tensor:
    """Host memory for real tensors."""
    return torch.zeros(numel, dtype=dtype)
