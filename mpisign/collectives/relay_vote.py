"""The majority vote relayed along trees: every rank decides for itself, and no rank is a server."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..topology import Tree
from .relay_sum import Delay
from .relay_tally import RelayTally, least_late
from .vote import Vote


class RelayVote(Vote):
    """The verdict of call t is that of all ballots of call t − late, the exact majority with the same bits on all ranks.

    late is the longest delay of the trees: their diameter with `overlapped` messages, one less with `synchronous` ones,
    so that two ranks, or a star's center, decide at once. In the first `late` calls nothing is decided, and what is cast
    in the last ones is decided by nobody. A tie tosses the coin of the call in which it was cast: the verdicts are those
    of any other vote, only later. An edge carries one tally each way and call (`RelayTally`): one bit a coordinate from a
    leaf, up to ceil(log2(n)) from all others. Several trees carry a part of the words each.

    With `stale` a verdict counts the freshest ballots that are there, those of rank j being d_ij calls old; late is 0,
    but verdicts of different ranks differ, and a message that is lost only takes its ballots with it.

    Args:
        trees: of comm.size nodes each; who talks to whom.
        delay: as in `RelayTally`.
        stale: see above.

    Attributes:
        late: see above.
        relays: the tallies of each tree.
    """

    def __init__(
        self,
        comm: Comm,
        layout: kernels.Layout,
        *args: Any,
        trees: Sequence[Tree],
        delay: Delay = "synchronous",
        stale: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(comm, layout, *args, **settings)
        for tree in trees:
            if tree.size != comm.size:
                raise ValueError(f"a tree of {tree.size} nodes for {comm.size} ranks: they must be as many")
        self.late = 0 if stale else least_late(trees, delay)
        share = self._share = -(-layout.words // len(trees))
        parts = [
            layout.part(min(k * share, layout.words), min((k + 1) * share, layout.words)) for k in range(len(trees))
        ]
        late = None if stale else self.late
        self.relays = [
            RelayTally(comm, tree, part, self.ballots, delay, late, channel, self.watch)
            for channel, (tree, part) in enumerate(zip(trees, parts, strict=True))
        ]
        self._decided = [kernels.Verdict(part, self.tie) for part in parts]
        nothing = torch.zeros(self.ballots * layout.message, dtype=torch.uint64)
        self._own = deque([nothing] * (self.late + 1), self.late + 1)
        self._keys = deque([0] * (self.late + 1), self.late + 1)

    @property
    def own(self) -> Tensor:
        """Ballots of this rank among those that the last verdict is about; abstentions before there were any."""
        return self._own[-1]

    def _decide(self, ballot: Tensor, key: int) -> None:
        self._own.appendleft(ballot.clone())
        self._keys.appendleft(key)
        shards = torch.zeros((len(self.relays), self.ballots * (self.layout.header + self._share)), dtype=torch.uint64)
        self._cut(ballot, len(self.relays), shards)
        for relay, shard in zip(self.relays, shards, strict=True):
            relay.start(torch.stack(self._each_ballot(shard, relay.layout)))
        for relay, verdict in zip(self.relays, self._decided, strict=True):
            self._close(relay.finish(), self._keys[-1], verdict)
        self._join()

    def _join(self) -> None:
        """Put the verdict together from those of the trees."""
        whole, start = self.verdict, 0
        whole.header[:], whole.count[:] = self._decided[0].header, self._decided[0].count
        for part in self._decided:
            stop = start + part.layout.words
            whole.words[start:stop] = part.words
            if self.tie == "abstain":
                whole.ties[start:stop] = part.ties
            whole.header &= part.header  # stale votes: a parameter is decided where all trees have news of it
            whole.count[0] = min(whole.count[0], part.count[0])
            start = stop

    def state(self) -> dict[str, Tensor]:
        """Return what has been cast and not been decided, by name; waits for messages under way."""
        relayed = {f"{k} {name}": block for k, relay in enumerate(self.relays) for name, block in relay.state().items()}
        return {"keys": torch.tensor(list(self._keys)), "own": torch.stack(list(self._own)), **relayed}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self._keys.extendleft(reversed(state["keys"].tolist()))
        self._own.extendleft(reversed(list(state["own"].clone())))
        for k, relay in enumerate(self.relays):
            relay.restore(
                {name.removeprefix(f"{k} "): block for name, block in state.items() if name.startswith(f"{k} ")}
            )
