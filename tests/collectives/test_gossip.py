import numpy as np
import pytest
import torch
from torch import Tensor

from mpisign import simulate
from mpisign.collectives.gossip import Gossip
from mpisign.collectives.push_sum import OnePeerPush, PushSum
from mpisign.comm import Comm
from mpisign.comm.lossy import LossyComm
from mpisign.topology import Digraph, OnePeerExponential, binary_tree, exponential, ring
from mpisign.topology.weights import metropolis_hastings

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def starts(n: int) -> Tensor:
    return torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("graph", [ring(1), ring(2), ring(3), ring(7), binary_tree(6)], ids=lambda g: f"{g.edges}")
def test_gossip_multiplies_by_the_matrix(graph) -> None:
    weights = metropolis_hastings(graph)

    def body(comm: Comm) -> Tensor:
        x, gossip = starts(comm.size)[comm.rank].clone(), Gossip(comm, weights)
        for _ in range(3):
            gossip(x)
        return x

    expected = torch.from_numpy(np.linalg.matrix_power(weights, 3)) @ starts(graph.size)
    assert torch.allclose(torch.stack(simulate(graph.size, body)), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("probability", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gossip_of_equal_vectors_keeps_every_bit_whatever_gets_lost(dtype: torch.dtype, probability: float) -> None:
    # dividing by the wrong sum of weights shrank a model by 2/3 for each lost message of a ring
    equal = starts(1)[0].to(dtype)

    def body(comm: Comm) -> Tensor:
        x, gossip = equal.clone(), Gossip(LossyComm(comm, probability), metropolis_hastings(ring(comm.size)))
        for _ in range(60):
            gossip(x)
        return x

    assert all(torch.equal(x, equal) for x in simulate(7, body))


def test_gossip_counts_what_came() -> None:
    def body(comm: Comm, probability: float) -> int:
        gossip = Gossip(LossyComm(comm, probability), metropolis_hastings(ring(comm.size)))
        gossip(torch.ones(3))
        return gossip.count

    assert simulate(5, body, 0.0) == [3] * 5
    assert simulate(5, body, 1.0) == [1] * 5


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_one_peer_pushes_give_the_exact_mean_every_log2_n_rounds(n: int) -> None:
    rounds = max(1, n.bit_length() - 1)

    def body(comm: Comm) -> list[Tensor]:
        x, push = starts(n)[comm.rank].clone(), OnePeerPush(comm, OnePeerExponential(n))
        before = x.clone()
        for number in range(rounds):
            before = x.clone()
            push(x, number)
        return [before, x]

    almost, exact = zip(*simulate(n, body), strict=True)
    mean = starts(n).mean(0).expand(n, -1)
    assert torch.allclose(torch.stack(exact), mean, rtol=0, atol=1e-15 * n)
    assert n == 1 or not torch.allclose(torch.stack(almost), mean, rtol=0, atol=1e-3)


def test_the_references_order_is_exact_every_fourth_call_of_two_rounds() -> None:
    def body(comm: Comm, order: str, calls: int) -> Tensor:
        x = starts(16)[comm.rank].clone()
        push = OnePeerPush(comm, OnePeerExponential(16, order, 2), 2)
        for call in range(calls):
            push(x, call)
        return x

    mean = starts(16).mean(0).expand(16, -1)
    for order, exact in (("intended", [False, True, True, True]), ("reference", [False, False, False, True])):
        found = [torch.allclose(torch.stack(simulate(16, body, order, calls)), mean) for calls in (1, 2, 3, 4)]
        assert found == exact


@pytest.mark.parametrize(
    "digraph", [exponential(6), Digraph(((1, 2), (2,), (3,), (0,)))], ids=["exponential", "uneven"]
)
def test_push_sum_gives_the_mean_though_rows_dont_add_up_to_1(digraph: Digraph) -> None:
    def body(comm: Comm) -> tuple[Tensor, float]:
        x, push = starts(comm.size)[comm.rank].clone(), PushSum(comm, digraph, rounds=2)
        for call in range(100):
            push(x, call)
        return x, push.weight

    results = simulate(digraph.size, body)
    mean = starts(digraph.size).mean(0)
    assert all(torch.allclose(x, mean, rtol=0, atol=1e-12) for x, _ in results)
    assert sum(weight for _, weight in results) == pytest.approx(digraph.size)


@pytest.mark.parametrize("kind", [OnePeerPush, PushSum])
def test_pushes_of_equal_vectors_keep_them_whatever_gets_lost(kind: type) -> None:
    def body(comm: Comm) -> Tensor:
        graph = OnePeerExponential(comm.size) if kind is OnePeerPush else exponential(comm.size)
        x, push = torch.full((3,), 0.7, dtype=torch.float64), kind(LossyComm(comm, 0.1), graph, 2)
        for call in range(100):
            push(x, call)
        return x

    assert torch.allclose(torch.stack(simulate(8, body)), torch.full((8, 3), 0.7, dtype=torch.float64), rtol=1e-13)
