"""Several relays that share one vector, so that no rank has much to do: two trees in which nobody is inside both."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..codecs import Codec
from ..comm import Comm
from ..timing import Stopwatch
from ..topology import Tree
from .differences import Differences
from .relay_sum import Delay, RelaySum


class Striped:
    """Relays coordinate e along tree e mod k, of k trees; with one tree it is a plain RelaySum.

    Each tree has its own messages, delays and counts. Source: Vogels et al. 2021, double binary trees: half of the
    coordinates each, so that a rank sends about two vectors a step, however many ranks there are.

    Args:
        comm: the ranks; all make the same calls.
        trees: one or more; they may share edges.
        numel: the length of the vectors.
        dtype: float32 or float64.
        delay: as in `RelaySum`.
        watch: receives the seconds of the phase "communicate".
        codec: makes the codec of vectors of a length, through which messages go (`Differences`); None: as they are.
        seed: names the codec's coins.
        first: the channel of the first tree; the others have the next ones.
    """

    def __init__(
        self,
        comm: Comm,
        trees: Sequence[Tree],
        numel: int,
        dtype: torch.dtype = torch.float32,
        delay: Delay = "synchronous",
        watch: Stopwatch | None = None,
        codec: Callable[[int], Codec] | None = None,
        seed: int = 0,
        first: int = 0,
    ) -> None:
        self.relays = []
        for number, tree in enumerate(trees):
            length, channel, through = len(range(number, numel, len(trees))), first + number, None
            if codec is not None:
                through = Differences(comm, tree.neighbors[comm.rank], codec(length), dtype, channel, seed)
            self.relays.append(RelaySum(comm, tree, length, dtype, delay, channel, watch, through))

    @property
    def nbytes(self) -> int:
        """Bytes of one message of each tree."""
        return sum(relay.nbytes for relay in self.relays)

    def parts(self, vector: Tensor) -> list[Tensor]:
        """[numel] -> k views, the coordinates of each tree."""
        return [vector[number :: len(self.relays)] for number in range(len(self.relays))]

    def __call__(self, own: Tensor) -> list[tuple[Tensor, int]]:
        """Return for each tree the sum of its part, and over how many ranks it is; valid until the next call."""
        for relay, part in zip(self.relays, self.parts(own), strict=True):
            relay.start(part)
        return [(relay.finish(), relay.count) for relay in self.relays]

    def settle(self) -> None:
        """Wait for messages under way."""
        for relay in self.relays:
            relay.settle()

    def state(self) -> dict[str, Tensor]:
        """Return the messages under way, by name; waits for them."""
        return {f"{k} {name}": block for k, relay in enumerate(self.relays) for name, block in relay.state().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up messages that `state` gave."""
        for k, relay in enumerate(self.relays):
            relay.restore(
                {name.removeprefix(f"{k} "): block for name, block in state.items() if name.startswith(f"{k} ")}
            )
