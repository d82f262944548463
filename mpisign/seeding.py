"""The only source of chance: one independent stream per (seed, rank, purpose).

Global generators stay untouched, and no two ranks or purposes share a stream, so that a worker's batches do not change
when its attack, its noise or its neighbours do.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

SHARED = -1
"""The rank to pass for a stream that all ranks draw alike."""


def _sequence(seed: int, rank: int, purpose: str) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, rank + 1, zlib.crc32(purpose.encode())])


def generator(seed: int, rank: int, purpose: str) -> np.random.Generator:
    """Return NumPy's generator of the stream (seed >= 0, rank or SHARED, purpose).

    >>> bool(generator(0, 1, "batches").integers(100) == generator(0, 1, "batches").integers(100))
    True
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, rank, purpose)))


def key(seed: int, rank: int, purpose: str) -> int:
    """Return 63 bits that name the stream: the key of a counter-based generator."""
    return int(_sequence(seed, rank, purpose).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generator(seed: int, rank: int, purpose: str) -> "torch.Generator":
    """Return torch's CPU generator of the stream."""
    import torch

    return torch.Generator().manual_seed(key(seed, rank, purpose))


@contextmanager
def torch_seeded(seed: int, rank: int, purpose: str) -> Iterator[None]:
    """Let torch's global CPU generator be the stream inside the block (module initialisers use it); restore it after."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, rank, purpose))
        yield
