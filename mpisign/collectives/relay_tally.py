"""Tallies relayed along a tree: each rank counts all ballots of one step, whoever cast them, and nobody is a server."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm, Pending
from ..timing import Stopwatch
from ..topology import Tree
from .relay_sum import Delay

_NUMBERS = 2  # in a message, after the voters of each parameter: voters on anything, ballots


class RelayTally:
    """Counts every rank's ballots once, at every rank, by messages between neighbours alone.

        message to j:  own ballots + what the others but j sent       bit-sliced counters, ceil(log2(k+1)) bits a coordinate
        tally:         own ballots + what all neighbours sent         for the k ballots on the sender's side of the edge

    **Waves** (`late` given): ballots are held back so that a message is about one step only. That to j in call t is about
    call t − h, where h is the height of the tree on this side of the edge: what stands behind the nearer neighbours waits
    for what comes from the farthest. Every tally in call t is then about call t − late, at all ranks alike. Messages are
    as many and as long as without; a rank keeps at most late + 1 of them an edge, and as many ballots of its own.

    **As they come** (`late` None): a tally in call t holds what rank j cast in call t − d_ij, max(0, hops − 1) calls ago
    with `synchronous` delay and hops with `overlapped`, as in `RelaySum`.

    A rank with m neighbours adds about m² tallies a call: it is made for trees of small degree. Of a message that is lost
    the ballots are missing in the tally, which knows how many it has.

    Args:
        comm: the ranks; all make the same calls.
        tree: who talks to whom.
        layout: of a ballot.
        ballots: how many a rank casts at once.
        delay: "synchronous" or "overlapped": messages are used in the call in which they are sent, or in the next.
        late: see above; at least `least_late(tree, delay)`.
        channel: tells the messages of trees apart that share an edge.
        watch: receives the seconds of the phases "communicate" and "vote".
    """

    def __init__(
        self,
        comm: Comm,
        tree: Tree,
        layout: kernels.Layout,
        ballots: int = 1,
        delay: Delay = "synchronous",
        late: int | None = None,
        channel: int = 0,
        watch: Stopwatch | None = None,
    ) -> None:
        self.comm, self.layout, self.delay, self.channel = comm, layout, delay, channel
        self.watch = watch or Stopwatch()
        behind = ranks_behind(tree, comm.rank)
        hops = tree.distances(comm.rank)
        reach = {k: max(hops[node] for node in nodes) for k, nodes in behind.items()}
        heights = {j: max((reach[k] for k in behind if k != j), default=0) for j in behind}  # of this side of each edge
        waits = late is not None
        # how many calls old the own ballots are, and how many messages ago the messages of k came, that are used
        self._own_age = {j: heights[j] if waits else 0 for j in behind}
        self._ages = {j: {k: heights[j] - reach[k] if waits else 0 for k in behind if k != j} for j in behind}
        self._late = late or 0
        travels = int(delay == "overlapped")
        self._last_ages = {k: self._late - travels - reach[k] + 1 if waits else 0 for k in behind}

        counts = {k: ballots * len(nodes) for k, nodes in behind.items()}
        whole = ballots * comm.size
        self._lengths = {k: self._length(count) for k, count in counts.items()}
        self._outbox = {j: torch.zeros(self._length(whole - counts[j]), dtype=torch.uint64) for j in behind}
        self._tallies = {j: kernels.Tally(layout, whole - counts[j]) for j in behind}
        self._tally = kernels.Tally(layout, whole)
        oldest = {k: max([self._last_ages[k], *(ages[k] for j, ages in self._ages.items() if j != k)]) for k in behind}
        self._own = deque(
            [self._abstentions(ballots)] * (1 + max([self._late, *self._own_age.values()])),
            1 + max([self._late, *self._own_age.values()]),
        )
        self._came = {k: deque([self._nothing(k)] * (1 + age), 1 + age) for k, age in oldest.items()}
        self._pending: Pending | None = None

    def _length(self, ballots: int) -> int:
        return len(self.layout.numels) + _NUMBERS + ballots.bit_length() * self.layout.words

    def _abstentions(self, ballots: int) -> Tensor:
        return torch.zeros((ballots, self.layout.message), dtype=torch.uint64)

    def _nothing(self, source: int) -> Tensor:
        return torch.zeros(self._lengths[source], dtype=torch.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's messages of a call."""
        return sum(message.nbytes for message in self._outbox.values())

    def start(self, own: Tensor) -> None:
        """Send this rank's messages, with its ballots uint64[ballots, layout.message], which are kept."""
        self.settle()
        self._own.appendleft(own)
        with self.watch("vote"):
            for j, message in self._outbox.items():
                self._write(self._count(self._tallies[j], self._own_age[j], self._ages[j]), message)
        with self.watch("communicate"):
            self._pending = self.comm.post(self._outbox, self.channel, self._lengths)

    def finish(self) -> kernels.Tally:
        """Return the tally of the call that was started; valid until the next."""
        if self.delay == "synchronous":
            self.settle()
        with self.watch("vote"):
            return self._count(self._tally, self._late, self._last_ages)

    def settle(self) -> None:
        """Wait for messages under way."""
        if self._pending is None:
            return
        with self.watch("communicate"):
            inbox, self._pending = self._pending.wait(), None
        for k, came in self._came.items():
            came.appendleft(inbox[k] if k in inbox else self._nothing(k))

    def _count(self, tally: kernels.Tally, own_age: int, ages: dict[int, int]) -> kernels.Tally:
        parameters = len(self.layout.numels)
        tally.clear()
        tally.add(list(self._own[own_age]))
        for k, age in ages.items():
            message = self._came[k][age]
            voters = message[:parameters].numpy().astype(np.int64)
            count, added = message[parameters : parameters + _NUMBERS].tolist()
            planes = message[parameters + _NUMBERS :].view(-1, self.layout.words)
            tally.merge(planes[: added.bit_length()], voters, added, count)
        return tally

    def _write(self, tally: kernels.Tally, message: Tensor) -> None:
        parameters = len(self.layout.numels)
        message[:parameters] = torch.from_numpy(tally.voters.astype(np.uint64))
        message[parameters], message[parameters + 1] = tally.count, tally.added
        message[parameters + _NUMBERS :] = tally.counters().view(-1)

    def state(self) -> dict[str, Tensor]:
        """Return ballots and messages that are kept, by name; waits for those under way."""
        self.settle()
        own = {f"ballots {age}": ballots for age, ballots in enumerate(self._own)}
        return own | {f"from {k} {age}": m for k, came in self._came.items() for age, m in enumerate(came)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self.settle()
        for age in range(len(self._own)):
            self._own[age] = state[f"ballots {age}"].clone()
        for k, came in self._came.items():
            for age in range(len(came)):
                came[age] = state[f"from {k} {age}"].clone()


def ranks_behind(tree: Tree, rank: int) -> dict[int, list[int]]:
    """Return {neighbour: the ranks that are reached through it, itself among them}.

    >>> from mpisign.topology import chain
    >>> ranks_behind(chain(4), 1)
    {0: [0], 2: [2, 3]}
    """
    behind: dict[int, list[int]] = {neighbor: [] for neighbor in tree.neighbors[rank]}
    for node in range(tree.size):
        if node != rank:
            behind[tree.path(rank, node)[1]].append(node)
    return behind


def least_late(trees: Sequence[Tree], delay: Delay) -> int:
    """Return the age of the freshest ballots that all ranks can count together: the longest delay.

    >>> from mpisign.topology import chain
    >>> least_late([chain(4)], "synchronous"), least_late([chain(4)], "overlapped")
    (2, 3)
    """
    return max(max(0, tree.diameter - (delay == "synchronous")) for tree in trees)
