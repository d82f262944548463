"""Messages to neighbours through a codec, as differences to what the receiver already knows."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from .. import kernels, seeding
from ..codecs import Codec
from ..comm import Comm, Pending


class Differences:
    """Carries float vectors to neighbours; both ends of an edge keep an estimate e of what was sent along it last.

        sender:    q = decode(encode(m − e)),  γ = <m − e, q>/‖q‖²,  e ← e + γq
        receiver:  e ← e + γq, and takes e for m

    A vector that changes little from message to message so arrives nearly whole, whatever the codec: what it loses is
    still in m − e, and is sent again with the next message, as by error feedback. γ is what fits best, so that
    ‖m − e‖² shrinks by <m − e, q>²/‖q‖² with each message, and grows with none; without it an unbiased codec whose noise is
    larger than its signal, such as QSGD with few levels, would drive the estimates away (for scaled signs and top-k γ is
    1, but for rounding). The last element of a vector, a relay's count, is sent as it is.

    A vector whose difference the codec doesn't accept is not sent: e stays. Every message must arrive, since both ends
    change e by it: so it doesn't go with a network that loses messages. Memory: two vectors an edge.

    Source: the difference as in CHOCO (Koloskova, Stich, Jaggi 2019) and EF21 (Richtárik, Sokolov, Fatkhullin 2021).

    Args:
        comm: carries the messages.
        neighbors: of this rank, symmetric.
        codec: for the vectors without their last element; a worker's coins are its own for each edge.
        dtype: of the vectors and estimates, float32 or float64; differences are rounded to float32.
        channel: names the coins, and the messages.
        seed: names the coins.
    """

    def __init__(
        self, comm: Comm, neighbors: Sequence[int], codec: Codec, dtype: torch.dtype, channel: int = 0, seed: int = 0
    ) -> None:
        self.comm, self.codec, self.channel = comm, codec, channel
        self._calls = 0
        self._sent = {j: torch.zeros(codec.numel, dtype=dtype) for j in neighbors}
        self._received = {j: torch.zeros(codec.numel, dtype=dtype) for j in neighbors}
        self._coins = {j: seeding.key(seed, comm.rank, f"relay {channel} to {j}") for j in neighbors}

    @property
    def nbytes(self) -> int:
        """Bytes of a message: the codec's, and a word with γ and the count."""
        return 8 + self.codec.nbytes

    def post(self, outbox: Mapping[int, Tensor]) -> Pending:
        """As `Comm.post`: start to send float[numel + 1] to each neighbour; `wait` returns what came in that form."""
        messages = {j: self._encoded(j, vector) for j, vector in outbox.items()}
        self._calls += 1
        return _Arriving(self.comm.post(messages, self.channel), self._decoded)

    def _encoded(self, j: int, vector: Tensor) -> Tensor:
        message = torch.zeros(1 + self.codec.words, dtype=torch.uint64)
        estimate, factor = self._sent[j], np.float32(0)
        difference = (vector[:-1] - estimate).float()
        if self.codec.accepts(difference):
            message[1:] = self.codec.encode(difference, kernels.stream(self._coins[j], self._calls))
            arrived = self.codec.decode(message[1:])
            factor = _best_factor(difference.numpy(), arrived.numpy())
            estimate += arrived.mul_(float(factor))
        message.numpy().view(np.uint32)[:2] = factor.view(np.uint32), int(vector[-1])
        return message

    def _decoded(self, j: int, message: Tensor) -> Tensor:
        estimate, head = self._received[j], message[:1].numpy().view(np.uint32)
        factor, count = head.view(np.float32)[0], int(head[1])
        if factor != 0:
            estimate += self.codec.decode(message[1:]).mul_(float(factor))
        vector = estimate.new_empty(len(estimate) + 1)
        vector[:-1], vector[-1] = estimate, count
        return vector

    def state(self) -> dict[str, Tensor]:
        """Return the estimates, by name; messages under way must have been waited for."""
        sent = {f"to {j}": estimate for j, estimate in self._sent.items()}
        received = {f"from {j}": estimate for j, estimate in self._received.items()}
        return {"calls": torch.tensor(self._calls), **sent, **received}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self._calls = int(state["calls"])
        for j in self._sent:
            self._sent[j].copy_(state[f"to {j}"])
            self._received[j].copy_(state[f"from {j}"])


class _Arriving(Pending):
    """Messages that are decoded when they are there."""

    def __init__(self, pending: Pending, decoded: Callable[[int, Tensor], Tensor]) -> None:
        self._pending, self._decoded = pending, decoded

    def wait(self) -> dict[int, Tensor]:
        return {j: self._decoded(j, message) for j, message in self._pending.wait().items()}


def _best_factor(wanted: kernels.Floats, arrived: kernels.Floats) -> np.float32:
    """The γ for which γ·arrived is nearest to what is wanted; 0 where nothing arrives."""
    size = float(np.square(arrived, dtype=np.float64).sum())
    with np.errstate(over="ignore"):
        factor = np.float32(float(np.multiply(wanted, arrived, dtype=np.float64).sum()) / size if size else 0)
    return factor if np.isfinite(factor) else np.float32(0)
