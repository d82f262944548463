"""The delayed mean of a relay, and what stands for vectors that have not come yet, or got lost."""

from typing import Literal, get_args

import torch
from torch import Tensor

from .striped import Striped

Fill = Literal["initial", "counts", "own", "refresh"]
FILLS: tuple[Fill, ...] = get_args(Fill)


class RelayMean:
    """x_i = (s_i + (n − n̄_i)·r) / n, where s_i is the relayed sum, over n̄_i of the n ranks, and r stands for the others.

        initial     r = x0, where all ranks started: the paper's code, and what its theory is about
        counts      x_i = s_i / n̄_i, the mean of what is there
        own         r = this rank's own vector
        refresh     r = the last mean: the paper's code where messages get lost
        nothing     r = 0, for relayed updates

    After the longest delay all are the same, as long as no message is lost. Where messages are lost, `initial` pulls
    everybody back to the start for ever. `initial` and `refresh` keep one more vector.

    Args:
        relay: adds the vectors.
        fill: see above.
        start: x0, copied.
        scale: x0 is multiplied by it, for relays of scaled models.
    """

    def __init__(self, relay: Striped, fill: Fill | Literal["nothing"], start: Tensor, scale: float = 1.0) -> None:
        self.relay, self.fill = relay, fill
        self.ranks = relay.relays[0].comm.size
        self.reference = scale * start if fill in ("initial", "refresh") else torch.empty(0, dtype=start.dtype)
        self.count = 0

    def __call__(self, vector: Tensor) -> None:
        """Replace a rank's vector by the mean over all ranks; `count` says of how many there is news at least."""
        sums = self.relay(vector)
        self.count = min(count for _, count in sums)
        references = self.relay.parts(self.reference)
        for part, reference, (total, count) in zip(self.relay.parts(vector), references, sums, strict=True):
            if count == self.ranks or self.fill in ("counts", "nothing"):
                part.copy_(total)
            else:
                part.copy_(part if self.fill == "own" else reference).mul_(self.ranks - count).add_(total)
            part.div_(count if self.fill == "counts" else self.ranks)
        if self.fill == "refresh":
            self.reference.copy_(vector)

    def settle(self) -> None:
        """Wait for messages under way."""
        self.relay.settle()

    def state(self) -> dict[str, Tensor]:
        """Return what it keeps, by name; waits for messages under way."""
        return {"reference": self.reference, **self.relay.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self.reference = state["reference"].clone()
        self.relay.restore({name: block for name, block in state.items() if name != "reference"})
