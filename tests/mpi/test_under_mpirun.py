"""The protocols over real MPI; run with `mpirun -n N python -m pytest --with-mpi --only-mpi tests/mpi`."""

import pytest
import torch
from protocols import fit, verbs

from mpisign import SGD, SSDM, Adam, EFSignSGD, Lion, SignSGD, Signum, simulate
from mpisign.comm import Comm

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("patient", [True, False])
def test_every_verb_does_what_it_says(patient: bool) -> None:
    from mpisign import MPIComm

    comm = MPIComm(patient=patient)
    counts = verbs(comm)
    assert counts == simulate(comm.size, verbs)[comm.rank]


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(
    "kind, settings",
    [
        (Signum, {}),
        (Signum, {"tie": "abstain", "weight_decay": 0.1}),
        (Signum, {"tie": "plus", "zero": "plus"}),
        (SignSGD, {}),
        (Signum, {"vote": "sharded", "tie": "abstain"}),
        (Signum, {"vote": "tree"}),
        (Signum, {"vote": "hierarchical", "tie": "abstain"}),
        (Signum, {"vote": "majority_of_majorities"}),
        (Signum, {"zero": "abstain", "vote": "sharded", "trust": 0.01}),
        (Signum, {"overlap": True, "bucket": 100}),
        (Lion, {"overlap": True, "bucket": 100, "vote": "hierarchical"}),
        (SSDM, {}),
        (SSDM, {"norm": "carry"}),
        (EFSignSGD, {}),
        (SGD, {"nesterov": True}),
        (SGD, {"codec": "qsgd:4"}),
        (SGD, {"aggregator": "median"}),
        (Adam, {"codec": "topk:0.1", "two_way": True}),
    ],
)
def test_mpi_and_the_simulator_end_with_the_same_bits(patient: bool, kind: type, settings: dict[str, object]) -> None:
    from mpisign import MPIComm

    comm = MPIComm(patient=patient)
    real = fit(comm, kind, **settings)
    assert real == simulated_by_one(comm, kind, **settings)


def simulated_by_one(comm: Comm, kind: type, **settings: object) -> int:
    """Return the checksum that as many simulated ranks end with; rank 0 runs them, the others wait asleep."""
    from mpisign import MPIComm

    quiet = MPIComm(patient=True)
    checksum = torch.zeros(1, dtype=torch.int64)
    if quiet.rank == 0:
        checksums = simulate(comm.size, lambda simulated: fit(simulated, kind, **settings))
        assert len(set(checksums)) == 1
        checksum[0] = checksums[0]
    return int(quiet.bcast(checksum))


def test_a_part_of_the_ranks_can_train_while_the_others_do_something_else() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    half = world.Split(world.rank % 2, world.rank)
    if world.rank % 2 == 0:
        assert fit(half, Signum, steps=5) == simulate(half.size, lambda comm: fit(comm, Signum, steps=5))[0]
    half.Free()
    assert world.allreduce(1) == world.size


def test_the_users_communicator_is_left_alone() -> None:
    from mpi4py import MPI

    from mpisign import MPIComm

    world = MPI.COMM_WORLD
    request = world.irecv(source=(world.rank - 1) % world.size, tag=0)
    comm = MPIComm(world)
    comm.barrier()
    world.send(world.rank, (world.rank + 1) % world.size, tag=0)
    assert request.wait() == (world.rank - 1) % world.size
