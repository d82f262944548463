"""Which samples each step takes: one rank's order of its data, to be continued from any step."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Batches:
    """One rank's batches, step after step; a rank with fewer samples gets empty ones at the end of each epoch.

    Args:
        random: shuffles; a stream of this rank's own.
        samples: how many this rank holds.
        visited: how many of them it visits in an epoch, at most.
        batch_size: samples a step.
        steps_per_epoch: the same on all ranks.
        epochs: of the whole run.
        steps: of the whole run, whatever `epochs` says; or None.
        shuffles: whether each epoch has an order of its own, or all have the first one's.

    Attributes:
        taken: steps so far.
    """

    def __init__(
        self,
        random: np.random.Generator,
        samples: int,
        visited: int,
        batch_size: int,
        steps_per_epoch: int,
        epochs: int,
        steps: int | None = None,
        shuffles: bool = True,
    ) -> None:
        self._random, self._samples, self._visited, self._batch_size = random, samples, visited, batch_size
        self.steps_per_epoch, self._wanted, self._shuffles = steps_per_epoch, (epochs, steps), shuffles
        self.taken = 0
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        epochs, steps = self._wanted
        return steps or epochs * self.steps_per_epoch

    @property
    def epochs(self) -> int:
        """Epochs of the whole run; the last may be cut short."""
        return -(-self.steps // self.steps_per_epoch)

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last step was its epoch's last."""
        return self.taken % self.steps_per_epoch == 0 or self.taken >= self.steps

    def take(self) -> Tensor:
        """Return the next step's samples, int64[at most batch_size]."""
        step = self.taken % self.steps_per_epoch
        if (step == 0 and self._shuffles) or self.taken == 0:
            self._shuffle()
        self.taken += 1
        return self._order[step * self._batch_size : (step + 1) * self._batch_size]

    def _shuffle(self) -> None:
        self._order = torch.from_numpy(self._random.permutation(self._samples)[: self._visited])

    def catch_up(self, taken: int) -> None:
        """Go on after so many steps, no fewer than so far: as if those between had been taken."""
        epochs = (
            -(-steps // self.steps_per_epoch) if self._shuffles else min(steps, 1) for steps in (self.taken, taken)
        )
        before, after = epochs
        for _ in range(after - before):
            self._shuffle()
        self.taken = taken

    def state(self) -> dict[str, Any]:
        """Return all that decides about the steps to come."""
        return {
            "taken": self.taken,
            "steps_per_epoch": self.steps_per_epoch,
            "order": self._order,
            "random": self._random.bit_generator.state,
        }

    def restore(self, state: dict[str, Any], same_data: bool = True) -> None:
        """Go on where `state` was given: with the same samples, or with others in a new order.

        With others, epochs may have another number of steps; the run then goes on at the same point of its epoch.
        """
        if not same_data:
            self.taken = state["taken"] * self.steps_per_epoch // state["steps_per_epoch"]
            self._shuffle()
            return
        self.taken, self.steps_per_epoch = state["taken"], state["steps_per_epoch"]
        self._order = state["order"].clone()
        self._random.bit_generator.state = state["random"]
