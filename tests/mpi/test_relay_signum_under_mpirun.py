"""Relayed votes over real MPI: the simulator's bits."""

from typing import Any

import pytest
import torch
from protocols import fit

from mpisign import MPIComm, RelaySignum, StaleRelaySignum, simulate
from mpisign.comm import Comm

pytestmark = pytest.mark.mpi


def train(comm: Comm, kind: Any, **settings: Any) -> int:
    """Train the small model; return this rank's checksum. What is under way at the end stays so."""
    return fit(comm, kind, steps=12, **settings)


@pytest.mark.parametrize("kind", [RelaySignum, StaleRelaySignum])
@pytest.mark.parametrize(
    "settings", [{}, {"topology": "chain", "delay": "overlapped"}, {"topology": "star", "zero": "abstain"}]
)
def test_relayed_votes_are_the_simulators(kind: Any, settings: dict[str, Any]) -> None:
    comm, quiet = MPIComm(), MPIComm(patient=True)
    mine = train(comm, kind, **settings)
    simulated = torch.zeros(comm.size, dtype=torch.int64)
    if quiet.rank == 0:
        simulated[:] = torch.tensor(simulate(comm.size, lambda one: train(one, kind, **settings)))
    assert mine == int(quiet.bcast(simulated)[comm.rank])
