"""Relays through a codec, and repaired ones, over real MPI: the simulator's bits."""

from typing import Any

import pytest
import torch
from protocols import fit

from mpisign import MPIComm, RelaySGD, simulate
from mpisign.comm import Comm
from mpisign.topology import Graph, chain, complete

pytestmark = pytest.mark.mpi


def simulated(comm: Comm, body: Any) -> int:
    """Return what this rank would end with in the simulator; rank 0 runs it, the others wait asleep."""
    quiet = MPIComm(patient=True)
    checksums = torch.zeros(comm.size, dtype=torch.int64)
    if quiet.rank == 0:
        checksums[:] = torch.tensor(simulate(comm.size, body))
    return int(quiet.bcast(checksums)[comm.rank])


@pytest.mark.parametrize("delay", ["synchronous", "overlapped"])
@pytest.mark.parametrize("codec", ["float16", "qsgd:4", "sign", "topk:0.1"])
def test_compressed_relays_are_the_simulators(codec: str, delay: str) -> None:
    def body(comm: Comm) -> int:
        return fit(comm, RelaySGD, steps=12, codec=codec, delay=delay, topology="chain")

    comm = MPIComm()
    assert body(comm) == simulated(comm, body)


@pytest.mark.parametrize("delay", ["synchronous", "overlapped"])
@pytest.mark.parametrize("edge", [True, False])
def test_repaired_relays_are_the_simulators(delay: str, edge: bool) -> None:
    def body(comm: Comm) -> int:
        graph, last = complete(comm.size), comm.size - 1
        if edge and comm.size < 3:
            graph = Graph.from_edges(comm.size, chain(comm.size).edges)
        x = torch.nn.Parameter(torch.zeros(100))
        optimizer = RelaySGD([x], topology="chain", delay=delay, comm=comm)
        for step in range(12):
            if step == 6 and edge:
                optimizer.repair(graph, [(0, 1)] if comm.size > 2 else [])
            elif step == 6 and comm.size > 1:
                part = comm.split(int(comm.rank == last))
                if comm.rank == last:
                    break
                optimizer.repair(graph, [last], part)
            x.grad = torch.randn(100, generator=torch.Generator().manual_seed(100 * step + comm.rank))
            optimizer.step()
        optimizer.settle()
        return int(x.detach().double().mul(2**20).sum())

    comm = MPIComm()
    assert body(comm) == simulated(comm, body)
