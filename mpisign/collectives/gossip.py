"""Gossip: each rank averages its vector with its neighbours', with the weights of a matrix."""

import numpy as np
import torch
from torch import Tensor

from ..comm import Comm, Pending
from ..timing import Stopwatch
from ..topology.weights import Matrix


class Gossip:
    """x_i ← Σ_j w_ij x_j, computed as x_i + Σ_j w_ij (x_j − x_i): equal vectors stay equal to the bit.

    Where messages get lost, the weights of those that came and of one's own are scaled up to 1 together, so that equal
    vectors stay as they are: the mean may wander, but nothing shrinks.

    Args:
        comm: the ranks; all make the same calls.
        weights: W, float64[n, n], each row adding up to 1. Ranks are neighbours where w_ij or w_ji is not 0.
        channel: tells messages apart from those of other collectives under way.
        watch: receives the seconds of the phase "communicate".

    Attributes:
        count: how many vectors are in the last average, one's own included.
    """

    def __init__(self, comm: Comm, weights: Matrix, channel: int = 0, watch: Stopwatch | None = None) -> None:
        self.comm, self.channel, self.watch = comm, channel, watch or Stopwatch()
        row = weights[comm.rank]
        neighbors = np.flatnonzero((row != 0) | (weights[:, comm.rank] != 0))
        self.weights = {j: float(row[j]) for j in neighbors.tolist() if j != comm.rank}
        self.own_weight = float(row[comm.rank])
        self.count = 1
        self._inbox: dict[int, Tensor] = {}
        self._pending: Pending | None = None

    def __call__(self, vector: Tensor) -> None:
        """Replace the vector by the average."""
        self.start(vector)
        self.finish(vector)

    @property
    def started(self) -> bool:
        """Whether messages are under way, or have come and wait to be used."""
        return self._pending is not None or bool(self._inbox)

    def start(self, vector: Tensor) -> None:
        """Send the vector as it is now; it may be changed at once."""
        message = vector.clone()  # outbox: alive until sent
        with self.watch("communicate"):
            self._pending = self.comm.post(dict.fromkeys(self.weights, message), self.channel)

    def finish(self, vector: Tensor) -> None:
        """Average the vector with what has been sent since `start`."""
        self.settle()
        inbox, self._inbox = self._inbox, {}
        weight = sum([self.own_weight, *(self.weights[j] for j in sorted(inbox))])
        pull = torch.zeros_like(vector)
        for j in sorted(inbox):
            pull += inbox[j].sub_(vector).mul_(self.weights[j])
        if len(inbox) < len(self.weights):
            pull /= weight if weight > 0 else 1.0  # nothing came, and one's own has no weight: it stays
        vector += pull
        self.count = 1 + len(inbox)

    def settle(self) -> None:
        """Wait for messages under way."""
        if self._pending is not None:
            with self.watch("communicate"):
                self._inbox, self._pending = self._pending.wait(), None

    def state(self) -> dict[str, Tensor]:
        """Return the messages under way, by name; waits for them."""
        self.settle()
        return {f"from {j}": message for j, message in self._inbox.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up messages that `state` gave."""
        self.settle()
        self._inbox = {int(name.removeprefix("from ")): message.clone() for name, message in state.items()}
