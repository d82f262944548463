"""What ranks do together in tests, written once and run in the simulator and under mpirun."""

import torch
from torch import Tensor, nn

from mpisign import DistributedOptimizer, checksum
from mpisign.comm import Comm


def verbs(comm: Comm) -> dict[str, int]:
    """Call every verb, check what comes, and return the bytes counted for each."""
    rank, size = comm.rank, comm.size
    others = size - 1
    counts: dict[str, int] = {}

    def counted(name: str) -> None:
        counts[name] = comm.traffic.sent - sum(counts.values())

    for root in {0, size - 1}:
        block = torch.full((5,), rank, dtype=torch.int64)
        assert comm.bcast(block, root).tolist() == [root] * 5
        counted(f"bcast from {root}")
        gathered = comm.gather(torch.tensor([rank, -rank]), root)
        assert (gathered is None) == (rank != root)
        if gathered is not None:
            assert gathered.tolist() == [[r, -r] for r in range(size)]
        counted(f"gather to {root}")
        arrived = [int(block[0]) for blocks in comm.collect(torch.tensor([rank]), root, buffers=2) for block in blocks]
        assert sorted(arrived) == (list(range(size)) if rank == root else [])
        counted(f"collect at {root}")
    assert comm.allgather(torch.tensor([rank], dtype=torch.uint64)).view(-1).tolist() == list(range(size))
    counted("allgather")
    large = comm.allgather(torch.full((1000,), float(rank)))
    assert large[:, 7].tolist() == list(range(size))
    counted("large allgather")
    sent = torch.tensor([[10 * rank + dest] * 3 for dest in range(size)])
    assert comm.alltoall(sent).tolist() == [[10 * source + rank] * 3 for source in range(size)]
    counted("alltoall")
    assert comm.allreduce(torch.tensor([rank, -rank]), "max").tolist() == [others, 0]
    assert comm.allreduce(torch.tensor([rank, -rank]), "min").tolist() == [0, -others]
    assert comm.allreduce(torch.tensor([1.5 * rank])).item() == 1.5 * size * others / 2
    counted("small allreduces")
    long = torch.arange(30_001, dtype=torch.float32) * 0.1 * (rank + 1)
    expected = sum((torch.arange(30_001, dtype=torch.float32) * 0.1 * (r + 1) for r in range(1, size)), long * 0)
    first = torch.arange(30_001, dtype=torch.float32) * 0.1
    total = first.clone()
    for r in range(1, size):
        total += torch.arange(30_001, dtype=torch.float32) * 0.1 * (r + 1)
    assert torch.equal(comm.allreduce(long), total)
    assert torch.allclose(total, expected + first, rtol=1e-5)  # another order of summation
    counted("large allreduce")
    ring = {(rank + 1) % size, (rank - 1) % size} - {rank}
    received = comm.exchange({neighbor: torch.tensor([rank, neighbor]) for neighbor in ring})
    assert {source: block.tolist() for source, block in received.items()} == {n: [n, rank] for n in ring}
    counted("exchange")
    first_tree, second_tree = (
        comm.post({neighbor: torch.tensor([rank + 100 * channel]) for neighbor in ring}, channel) for channel in (1, 2)
    )
    assert {s: int(b) for s, b in second_tree.wait().items()} == {n: n + 200 for n in ring}
    assert {s: int(b) for s, b in first_tree.wait().items()} == {n: n + 100 for n in ring}
    comm.barrier()
    assert comm.agree(42)
    assert comm.agree(rank) == (size == 1)
    return counts


def small_model(seed: int = 0) -> nn.Module:
    """A network of 20-30-3, without a draw from the global generator."""
    model = nn.utils.skip_init(nn.Linear, 20, 30), nn.ReLU(), nn.utils.skip_init(nn.Linear, 30, 3)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in (model[0], model[2]):
            for p in layer.parameters():
                p.copy_(torch.randn(p.shape, generator=random) / 4)
    return nn.Sequential(*model)


def batch(rank: int, step: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """A batch of a rank's own whose labels can be learned."""
    x = torch.randn(size, 20, generator=torch.Generator().manual_seed(1000 * step + rank))
    return x, x[:, :3].argmax(1)


def fit(comm: Comm, kind: type[DistributedOptimizer], steps: int = 50, **settings: object) -> int:
    """Train the small model and return the checksum of its parameters."""
    model = small_model(comm.rank)
    optimizer = kind(model.parameters(), comm=comm, **settings)
    for step in range(steps):
        x, y = batch(comm.rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return checksum(model.parameters())
