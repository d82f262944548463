"""Distributed training over MPI with one bit a coordinate.

    import mpisign
    optimizer = mpisign.Signum(model.parameters(), lr=1e-3)   # the one changed line

Importing this package does not start MPI; constructing an optimizer, or an `MPIComm`, does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algorithms import (
        D2,
        DPSGD,
        SGD,
        SSDM,
        Adam,
        AllReduceModel,
        DistributedOptimizer,
        EFSignSGD,
        ExactDiffusion,
        GradientTracking,
        Lion,
        QuasiGlobal,
        RelayMix,
        RelaySGD,
        RelaySGDGrad,
        RelaySignum,
        Report,
        SignSGD,
        Signum,
        StaleRelaySignum,
        StochasticGradientPush,
    )
    from .algorithms.weights import broadcast_buffers, checksum
    from .comm import Comm, MPIComm, simulate

__version__ = "0.1.0"

_HOME = {
    "Adam": "algorithms",
    "AllReduceModel": "algorithms",
    "D2": "algorithms",
    "DPSGD": "algorithms",
    "ExactDiffusion": "algorithms",
    "GradientTracking": "algorithms",
    "QuasiGlobal": "algorithms",
    "RelayMix": "algorithms",
    "RelaySGD": "algorithms",
    "RelaySGDGrad": "algorithms",
    "RelaySignum": "algorithms",
    "StaleRelaySignum": "algorithms",
    "StochasticGradientPush": "algorithms",
    "SGD": "algorithms",
    "SSDM": "algorithms",
    "EFSignSGD": "algorithms",
    "Lion": "algorithms",
    "SignSGD": "algorithms",
    "Signum": "algorithms",
    "DistributedOptimizer": "algorithms",
    "Report": "algorithms",
    "broadcast_buffers": "algorithms.weights",
    "checksum": "algorithms.weights",
    "Comm": "comm",
    "MPIComm": "comm",
    "simulate": "comm",
}

__all__ = [
    "D2",
    "DPSGD",
    "SGD",
    "SSDM",
    "Adam",
    "AllReduceModel",
    "Comm",
    "DistributedOptimizer",
    "EFSignSGD",
    "ExactDiffusion",
    "GradientTracking",
    "Lion",
    "MPIComm",
    "QuasiGlobal",
    "RelayMix",
    "RelaySGD",
    "RelaySGDGrad",
    "RelaySignum",
    "Report",
    "SignSGD",
    "Signum",
    "StaleRelaySignum",
    "StochasticGradientPush",
    "broadcast_buffers",
    "checksum",
    "simulate",
]


def __getattr__(name: str) -> Any:
    # torch and numba take seconds to import: `--help` and errors in arguments shouldn't wait for them
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
