"""The vote that suits the ranks and the size of the model."""

from typing import Any

from .. import kernels
from ..comm import Comm
from .server import ServerVote
from .sharded import ShardedVote
from .vote import Vote

FEW = 2
"""Ranks up to which the server has nothing to share out."""

SMALL = 1 << 16
"""Bytes of a ballot below which the messages are what takes the time: 2n of them by server, n² sharded."""


def auto(comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> Vote:
    """Return the server's vote for few ranks or small ballots, else the sharded one. Arguments as in `Vote`.

    The same on all ranks, since it looks only at what is the same. benchmarks/votes.py measures where they cross.
    """
    kind = ServerVote if comm.size <= FEW or 8 * layout.words < SMALL else ShardedVote
    return kind(comm, layout, *args, **settings)
