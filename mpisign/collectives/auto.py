"""The vote that suits the machines and the size of the model."""

from typing import Any

from .. import kernels
from ..comm import Comm
from .server import ServerVote
from .sharded import ShardedVote
from .vote import Vote

ALONE, APART = 1 << 20, 1 << 14
"""Bytes of a ballot up to which the server is faster: where all ranks share a machine, and where they don't."""


def auto(comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> Vote:
    """Return the server's vote for small ballots, whose messages take the time, else the sharded one. Arguments as in `Vote`.

    The same on all ranks, since it looks only at what is the same. Measured with benchmarks/votes.py (2026-11-29): on one
    machine with 2 cores the server is faster by 1.1 to 2.8 times up to 125 kB, for 2, 4 and 16 ranks, and slower by 1.25 at
    3.2 MB and 2 ranks; over 8 hosts with links of 100 Mbit/s it takes 3.1 ms against 6.0 at 1.25 kB, 12 against 10 at
    12.5 kB, and 114 against 66 at 125 kB, when its own link is full.
    """
    small = 8 * layout.words <= (ALONE if len(comm.nodes) == 1 else APART)
    return (ServerVote if small or comm.size == 1 else ShardedVote)(comm, layout, *args, **settings)
