"""RelaySum: every rank's vectors, each added exactly once, along a tree and with a delay of as many steps as hops."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..comm import Comm, Pending
from ..errors import ParameterError, TopologyError
from ..timing import Stopwatch
from ..topology import Tree
from .differences import Differences

Delay = Literal["synchronous", "overlapped"]
DELAYS: tuple[Delay, ...] = get_args(Delay)


class RelaySum:
    """Gives rank i in call t the sum over all ranks j of what j gave in call t − d_ij (Vogels et al. 2021, RelaySum).

        message to j:  own + what the others but j sent in the last call       never back to where it came from
        sum:           own + what all neighbours sent

    With `synchronous` delay messages are used in the call in which they are sent, so d_ij = max(0, hops − 1). With
    `overlapped` they travel until the next call, during which the caller computes, and d_ij = hops. Before call 0 all
    vectors are absent, which the count tells: it is the number of ranks that the sum is over, it travels in the message,
    and where a message gets lost, so does its part of the count. One message an edge is all that is kept.

    Args:
        comm: the ranks; all make the same calls.
        tree: who talks to whom.
        numel: the length of the vectors.
        dtype: float32 or float64. Sums are taken in the order of the neighbours.
        delay: see above.
        channel: tells the messages of trees apart that share an edge.
        watch: receives the seconds of the phase "communicate".
        through: carries the messages in place of comm, through a codec; counts stay exact.

    Attributes:
        count: of the last sum.

    Errors: TopologyError for what is no tree of as many nodes as ranks; ParameterError for another delay.
    """

    def __init__(
        self,
        comm: Comm,
        tree: Tree,
        numel: int,
        dtype: torch.dtype = torch.float32,
        delay: Delay = "synchronous",
        channel: int = 0,
        watch: Stopwatch | None = None,
        through: Differences | None = None,
    ) -> None:
        if not isinstance(tree, Tree):
            raise TopologyError(
                f"a relay needs a tree, got {type(tree).__name__}: mpisign.topology.Tree(…) tells why it is none"
            )
        if tree.size != comm.size:
            raise TopologyError(f"the tree has {tree.size} nodes, but there are {comm.size} ranks")
        if delay not in DELAYS:
            raise ParameterError(f"delay is one of {', '.join(DELAYS)}, got {delay!r}")
        self.comm, self.tree, self.delay, self.through = comm, tree, delay, through
        self.channel, self.watch = channel, watch or Stopwatch()
        self.count = 0
        self._sum = torch.zeros(numel + 1, dtype=dtype)  # the last element is the count
        self._outbox = {j: torch.zeros_like(self._sum) for j in tree.neighbors[comm.rank]}
        self._inbox: dict[int, Tensor] = {}
        self._pending: Pending | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of a message."""
        return self._sum.nbytes if self.through is None else self.through.nbytes

    def __call__(self, own: Tensor) -> Tensor:
        """Return the sum, own vector included; valid until the next call, and the count with it."""
        self.start(own)
        return self.finish()

    def start(self, own: Tensor) -> None:
        """Send this rank's messages."""
        self.settle()
        self._relay(own)
        self._inbox = {}  # relayed: its memory is free for what comes
        with self.watch("communicate"):
            through = self.through
            self._pending = through.post(self._outbox) if through else self.comm.post(self._outbox, self.channel)

    def finish(self) -> Tensor:
        """Return the sum of the call that was started."""
        if self.delay == "synchronous":
            self.settle()
            for j in sorted(self._inbox):
                self._sum += self._inbox[j]
        self.count = int(self._sum[-1])
        return self._sum[:-1]

    def settle(self) -> None:
        """Wait for messages under way."""
        if self._pending is not None:
            with self.watch("communicate"):
                self._inbox, self._pending = self._pending.wait(), None

    def _relay(self, own: Tensor) -> None:
        """Fill the outbox; leave own, and with overlapped delay all that has come, in `_sum`."""
        later, total = torch.zeros_like(self._sum), self._sum
        for j in sorted(self._outbox, reverse=True):  # two passes, so that a node of degree k adds 3k vectors, not k²
            self._outbox[j].copy_(later)
            if j in self._inbox:
                later += self._inbox[j]
        total[:-1], total[-1] = own, 1
        for j in sorted(self._outbox):
            self._outbox[j] += total
            if j in self._inbox:
                total += self._inbox[j]
        if self.delay == "synchronous":
            total[:-1], total[-1] = own, 1

    def state(self) -> dict[str, Tensor]:
        """Return the messages under way, by name, and what a codec keeps; waits for them."""
        self.settle()
        kept = {} if self.through is None else self.through.state()
        messages = {f"from {j}": message for j, message in self._inbox.items()}
        return messages | {f"codec {name}": block for name, block in kept.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up messages that `state` gave."""
        self.settle()
        kept = {name.removeprefix("codec "): block for name, block in state.items() if name.startswith("codec ")}
        if self.through is not None:
            self.through.restore(kept)
        self._inbox = {int(name[5:]): message.clone() for name, message in state.items() if name.startswith("from ")}
