"""The protocols over real MPI; run with `mpirun -n N python -m pytest --with-mpi --only-mpi tests/mpi`."""

import pytest
import torch
from protocols import fit, verbs

from mpisign import SGD, SSDM, Adam, EFSignSGD, Lion, SignSGD, Signum, simulate
from mpisign.comm import Comm
from mpisign.registry import BUILT_IN, load

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("patient", [True, False])
def test_every_verb_does_what_it_says(patient: bool) -> None:
    from mpisign import MPIComm

    comm = MPIComm(patient=patient)
    counts = verbs(comm)
    assert counts == simulate(comm.size, verbs)[comm.rank]


VOTES = [name for name in BUILT_IN["vote"] if getattr(load("vote", name), "exact", True)]


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("kind", [Signum, SignSGD, Lion])
def test_all_votes_end_with_the_bits_of_the_simulators_server(patient: bool, kind: type) -> None:
    from mpisign import MPIComm

    comm = MPIComm(patient=patient)
    simulated = simulated_by_one(comm, kind, steps=15, vote="server")
    assert {vote: fit(comm, kind, steps=15, vote=vote) for vote in VOTES} == dict.fromkeys(VOTES, simulated)


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(
    "kind, settings",
    [
        (Signum, {"tie": "abstain", "weight_decay": 0.1, "vote": "hierarchical"}),
        (Signum, {"tie": "plus", "zero": "plus"}),
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
    real = fit(comm, kind, steps=30, **settings)
    assert real == simulated_by_one(comm, kind, steps=30, **settings)


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


class Counted:
    """An mpi4py communicator that counts the calls of its methods."""

    def __init__(self, inner: object) -> None:
        self.inner, self.calls = inner, 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def counted(*args: object) -> object:
            self.calls += 1
            return found(*args)

        return counted


@pytest.mark.parametrize("vote, most", [("server", None), ("sharded", 2), ("auto", None)])
def test_the_calls_of_mpi_in_a_step_do_not_depend_on_the_number_of_parameters(vote: str, most: int | None) -> None:
    from mpisign import MPIComm

    comm = MPIComm(patient=False)
    parameters = [torch.nn.Parameter(torch.zeros(10)) for _ in range(200)]
    optimizer = Signum(parameters, vote=vote, comm=comm)
    comm._mpi = Counted(comm._mpi)
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()
    # by server: rank 0 receives from each other rank and broadcasts; a wait for all, beside these, makes six at four ranks
    assert comm._mpi.calls <= (most or (comm.size if comm.rank == 0 else 2))
    comm._mpi = comm._mpi.inner
