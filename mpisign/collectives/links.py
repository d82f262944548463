"""How long messages take between each pair of ranks, measured."""

import time

import numpy as np
import numpy.typing as npt
import torch

from ..comm import Comm
from ..comm.uncounted import uncounted


def link_seconds(comm: Comm, nbytes: int, repeats: int = 5) -> npt.NDArray[np.float64]:
    """Return the seconds that two ranks take to swap messages of so many bytes, as they do in a round of a relay.

    float64[n, n], symmetric, 0 on the diagonal, the same on all ranks: what `topology.spanning.measured_tree` takes. Of
    each pair the best of `repeats` swaps counts, since what disturbs can only add time, and of its two ends the slower
    one. In each of about n rounds every rank swaps with one other, so links that share a cable or a switch are measured
    under that load. Not counted as traffic. Collective.

    Errors: ValueError for a message of no bytes, or no repeats.
    """
    if nbytes < 1 or repeats < 1:
        raise ValueError(f"wanted messages of at least 1 byte and at least 1 repeat, got {nbytes} and {repeats}")
    seconds = torch.zeros((comm.size, comm.size), dtype=torch.float64)
    block = torch.zeros(nbytes, dtype=torch.uint8)
    with uncounted(comm):
        for partner in _partners(comm.rank, comm.size):
            comm.barrier()
            if partner is not None:
                seconds[comm.rank, partner] = min(_swap(comm, partner, block) for _ in range(repeats + 1))
        comm.allreduce(seconds.view(-1), "max")
    return torch.maximum(seconds, seconds.t()).numpy()


def _swap(comm: Comm, partner: int, block: torch.Tensor) -> float:
    started = time.perf_counter()
    comm.exchange({partner: block})
    return time.perf_counter() - started


def _partners(rank: int, size: int) -> list[int | None]:
    """Whom a rank meets in each round of a tournament in which all pairs meet once: the circle method.

    >>> [_partners(rank, 3) for rank in range(3)]
    [[None, 1, 2], [2, 0, None], [1, None, 0]]
    """
    places = size + size % 2
    rounds: list[int | None] = []
    for turn in range(places - 1 if size > 1 else 0):
        circle = [0, *((place + turn) % (places - 1) + 1 for place in range(places - 1))]
        partner = circle[places - 1 - circle.index(rank)]
        rounds.append(partner if partner < size else None)
    return rounds
