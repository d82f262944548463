"""Methods whose ranks keep models of their own, over real MPI: the simulator's bits, and the reference's trajectories."""

from typing import Any

import golden
import pytest
import torch
from protocols import fit

from mpisign import (
    D2,
    DPSGD,
    AllReduceModel,
    ExactDiffusion,
    GradientTracking,
    QuasiGlobal,
    RelayMix,
    RelaySGD,
    RelaySGDGrad,
    StochasticGradientPush,
    simulate,
)
from mpisign.comm import Comm, LossyComm
from mpisign.quadratics import RandomQuadratics

pytestmark = pytest.mark.mpi

METHODS: list[tuple[Any, dict[str, Any]]] = [
    (RelaySGD, {}),
    (RelaySGD, {"delay": "overlapped"}),
    (RelaySGD, {"topology": "star", "local": "adam", "lr": 0.01}),
    (RelaySGDGrad, {"topology": "chain", "delay": "overlapped"}),
    (RelayMix, {}),
    (DPSGD, {"delay": "overlapped"}),
    (D2, {}),
    (ExactDiffusion, {"topology": "binary_tree"}),
    (GradientTracking, {}),
    (QuasiGlobal, {}),
    (StochasticGradientPush, {}),
    (AllReduceModel, {}),
]


def train(comm: Comm, kind: Any, probability: float = 0.0, **settings: Any) -> int:
    """Train the small model; return this rank's checksum. What is under way at the end stays so."""
    return fit(LossyComm(comm, probability) if probability else comm, kind, steps=12, **settings)


def simulated(comm: Comm, kind: Any, probability: float, **settings: Any) -> int:
    """Return what this rank would end with in the simulator; rank 0 runs it, the others wait asleep."""
    from mpisign import MPIComm

    quiet = MPIComm(patient=True)
    checksums = torch.zeros(comm.size, dtype=torch.int64)
    if quiet.rank == 0:
        checksums[:] = torch.tensor(simulate(comm.size, lambda one: train(one, kind, probability, **settings)))
    return int(quiet.bcast(checksums)[comm.rank])


@pytest.mark.parametrize("kind, settings", METHODS)
def test_mpi_and_the_simulator_end_with_the_same_bits_on_each_rank(kind: Any, settings: dict[str, Any]) -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    assert train(comm, kind, **settings) == simulated(comm, kind, 0.0, **settings)


@pytest.mark.parametrize("kind, settings", [(RelaySGD, {"fill": "counts"}), (DPSGD, {}), (StochasticGradientPush, {})])
def test_the_same_messages_are_lost_under_mpi(kind: Any, settings: dict[str, Any]) -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    assert train(comm, kind, 0.2, **settings) == simulated(comm, kind, 0.2, **settings)


@pytest.mark.parametrize("name", golden.SHORT)
def test_the_reference_is_followed_under_mpi(name: str) -> None:
    from mpisign import MPIComm

    comm = MPIComm()
    if comm.size not in (4, 16):
        pytest.skip(f"there are trajectories of 4 and 16 workers, not of {comm.size}")
    run = golden.named(name, comm.size, 0.1)
    run = {**run, "err": {step: error for step, error in run["err"].items() if int(step) <= 50}}
    golden.assert_same(run, golden.replay(comm, run, RandomQuadratics(comm.size, heterogeneity=0.1, mu=0.5)))
