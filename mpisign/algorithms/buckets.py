"""Runs of parameters whose ballots travel together, while backward still works on those before them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from .. import kernels
from ..collectives import Vote
from ..collectives.staged import DeviceVote
from ..errors import ParameterError

if TYPE_CHECKING:
    from ..kernels.cuda.tally import AnyVerdict


@dataclass(eq=False)
class Bucket:
    """The parameters first … stop−1, their ballot and their vote.

    Attributes:
        result: waits for the verdict; None before the ballot is cast.
        finite: whether this rank's gradients were.
        before: the memory as it was before the ballot was cast, where that may have to be undone.
        there: the vote on a ballot in a GPU's memory, where it is there.
    """

    first: int
    stop: int
    layout: kernels.Layout
    ballot: Tensor
    vote: Vote
    before: Tensor | None = None
    there: DeviceVote | None = None
    result: Callable[[], "AnyVerdict"] | None = None
    finite: bool = True
    waiting: set[int] = field(default_factory=set)


def runs(numels: Sequence[int], coordinates: int) -> list[tuple[int, int]]:
    """Return (first, stop) of runs of parameters, last run first, each of at most so many coordinates or one parameter.

    >>> runs([5, 5, 100, 3, 3], 10)
    [(3, 5), (2, 3), (0, 2)]
    """
    cuts, stop, size = [], len(numels), 0
    for index in range(len(numels) - 1, -1, -1):
        if size and numels[index] and size + numels[index] > coordinates:
            cuts.append((index + 1, stop))
            stop, size = index + 1, 0
        size += numels[index]
    return [*cuts, (0, stop)]


class Buckets:
    """Casts each bucket's ballot as soon as backward has made its gradients, or at the latest in `flush`.

    Buckets are cast in one order on all ranks, whatever the order in which gradients come: so their messages meet.

    Args:
        parameters: of all buckets.
        buckets: in the order in which backward fills them, last layers first.
        cast: packs and sends one.
        eager: whether to cast during backward.
        watched: whether to refuse gradients that are changed in place afterwards. A GradScaler does so, by a factor of 1.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        buckets: Sequence[Bucket],
        cast: Callable[[Bucket], None],
        eager: bool,
        watched: bool = True,
    ) -> None:
        self.all, self._watched = list(buckets), watched
        self._parameters, self._cast = parameters, cast
        self._bucket_of = {index: bucket for bucket in self.all for index in range(bucket.first, bucket.stop)}
        self._held = False
        self._packed: dict[int, tuple[Tensor, int]] = {}  # gradients that have been cast, and their versions
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._on_gradient(index))  # type: ignore[no-untyped-call]
            for index, p in enumerate(parameters if eager else [])
            if p.requires_grad
        ]
        self.reset()

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def reset(self) -> None:
        """Get ready for the next step."""
        self._packed.clear()
        for bucket in self.all:
            bucket.result, bucket.finite = None, True
            bucket.waiting = {i for i in range(bucket.first, bucket.stop) if self._parameters[i].requires_grad}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let backward accumulate gradients only."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def flush(self) -> None:
        """Cast what has not been cast, and make sure that what has been cast is still what the gradients say."""
        for index, (gradient, version) in self._packed.items():
            now = self._parameters[index].grad
            if now is not gradient or (self._watched and now._version != version):
                raise ParameterError(
                    f"the gradient of parameter {index} has changed after its ballot was cast: with overlap=True nothing "
                    f"may come between backward and step. Clip or unscale without overlap; hand a GradScaler over as "
                    f"scaler=; accumulate inside no_sync()"
                )
        for bucket in self.all:
            if bucket.result is None:
                self._cast(bucket)

    def _on_gradient(self, index: int) -> Callable[[Tensor], None]:
        def ready(p: Tensor) -> None:
            if self._held:
                return
            bucket = self._bucket_of[index]
            if bucket.result is not None:
                raise ParameterError(
                    f"backward gave parameter {index} a gradient after its ballot was cast: with overlap=True call step "
                    f"after each backward, and all backwards but the last inside no_sync()"
                )
            bucket.waiting.discard(index)
            self._cast_full()

        return ready

    def _cast_full(self) -> None:
        for bucket in self.all:
            if bucket.result is not None:
                continue
            if bucket.waiting:
                return
            for index in range(bucket.first, bucket.stop):
                gradient = self._parameters[index].grad
                if gradient is not None:
                    self._packed[index] = gradient, gradient._version
            self._cast(bucket)
