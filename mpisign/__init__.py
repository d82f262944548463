"""Distributed training over MPI with one bit a coordinate.

    import mpisign
    optimizer = mpisign.Signum(model.parameters(), lr=1e-3)   # the one changed line

Importing this package does not start MPI; constructing an optimizer, or an `MPIComm`, does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algorithms import SGD, SSDM, Adam, DistributedOptimizer, EFSignSGD, Lion, Report, SignSGD, Signum
    from .algorithms.base import broadcast_buffers, checksum
    from .comm import Comm, MPIComm, simulate

__version__ = "0.1.0"

_HOME = {
    "Adam": "algorithms",
    "SGD": "algorithms",
    "SSDM": "algorithms",
    "EFSignSGD": "algorithms",
    "Lion": "algorithms",
    "SignSGD": "algorithms",
    "Signum": "algorithms",
    "DistributedOptimizer": "algorithms",
    "Report": "algorithms",
    "broadcast_buffers": "algorithms.base",
    "checksum": "algorithms.base",
    "Comm": "comm",
    "MPIComm": "comm",
    "simulate": "comm",
}

__all__ = [
    "SGD",
    "SSDM",
    "Adam",
    "Comm",
    "DistributedOptimizer",
    "EFSignSGD",
    "Lion",
    "MPIComm",
    "Report",
    "SignSGD",
    "Signum",
    "broadcast_buffers",
    "checksum",
    "simulate",
]


def __getattr__(name: str) -> Any:
    # torch and numba take seconds to import: `--help` and errors in arguments shouldn't wait for them
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
