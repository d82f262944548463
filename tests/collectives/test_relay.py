import numpy as np
import pytest
import torch
from torch import Tensor

from mpisign import seeding, simulate
from mpisign.collectives.mean_estimation import MeanEstimation
from mpisign.collectives.relay_mean import RelayMean
from mpisign.collectives.relay_sum import RelaySum
from mpisign.collectives.striped import Striped
from mpisign.comm import Comm
from mpisign.errors import ParameterError, TopologyError
from mpisign.quadratics import mean_samples
from mpisign.topology import Tree, binary_tree, chain, double_binary_trees, ring, star
from mpisign.topology.delays import delays

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

DELAYS = ("synchronous", "overlapped")


def random_tree(n: int, seed: int = 0) -> Tree:
    random = np.random.default_rng(seed)
    names = random.permutation(n).tolist()
    return Tree.from_edges(n, [(names[k], names[int(random.integers(k))]) for k in range(1, n)])


def vector(rank: int, step: int, numel: int = 5) -> Tensor:
    return torch.randn(numel, dtype=torch.float64, generator=seeding.torch_generator(7, rank, f"vector {step}"))


TREES = [chain(1), chain(2), chain(3), chain(7), star(6, center=2), binary_tree(9), random_tree(11)]


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: f"{tree.size} nodes, diameter {tree.diameter}")
def test_each_vector_is_added_once_after_its_delay(tree: Tree, delay: str) -> None:
    steps, late = 2 * tree.size, delays(tree, delay)

    def body(comm: Comm) -> list[tuple[Tensor, int]]:
        relay = RelaySum(comm, tree, 5, torch.float64, delay)
        return [(relay(vector(comm.rank, t)).clone(), relay.count) for t in range(steps)]

    for i, sums in enumerate(simulate(tree.size, body)):
        for t, (total, count) in enumerate(sums):
            there = [j for j in range(tree.size) if t >= late[i, j]]
            assert count == len(there)
            expected = sum(vector(j, t - int(late[i, j])) for j in there)
            assert torch.allclose(total, expected, rtol=0, atol=1e-12)  # another order of summation


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("fill", ["initial", "counts", "own", "refresh", "nothing"])
def test_all_fills_are_the_exact_mean_after_the_longest_delay(fill: str, delay: str) -> None:
    tree, start = random_tree(8, seed=3), torch.full((5,), 2.5, dtype=torch.float64)
    late = delays(tree, delay)

    def body(comm: Comm) -> list[Tensor]:
        mean = RelayMean(Striped(comm, [tree], 5, torch.float64, delay), fill, start)
        results = []
        for t in range(20):
            results.append(vector(comm.rank, t))
            mean(results[-1])
        return results

    for i, means in enumerate(simulate(tree.size, body)):
        for t in range(20):
            there = [j for j in range(tree.size) if t >= late[i, j]]
            total = sum(vector(j, t - int(late[i, j])) for j in there)
            others = {
                "initial": start,
                "counts": total / len(there),
                "own": vector(i, t),
                "refresh": means[t - 1] if t else start,
                "nothing": torch.zeros(5, dtype=torch.float64),
            }[fill]
            expected = (total + (tree.size - len(there)) * others) / tree.size
            assert torch.allclose(means[t], expected, rtol=0, atol=1e-12)
        assert len(there) == tree.size


@pytest.mark.parametrize("numel", [0, 1, 2, 3, 64, 65])
@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_two_trees_carry_every_other_coordinate(n: int, numel: int) -> None:
    trees = double_binary_trees(n)
    late = [delays(tree, "synchronous") for tree in trees]
    start = torch.zeros(numel, dtype=torch.float64)

    def body(comm: Comm) -> Tensor:
        mean = RelayMean(Striped(comm, trees, numel, torch.float64), "initial", start)
        for t in range(3):
            x = vector(comm.rank, t, numel)
            mean(x)
        return x

    for i, x in enumerate(simulate(n, body)):
        for number in range(2):
            there = [j for j in range(n) if late[number][i, j] <= 2]
            expected = sum(vector(j, 2 - int(late[number][i, j]), numel)[number::2] for j in there) / n
            assert torch.allclose(x[number::2], expected, rtol=0, atol=1e-12)


def test_two_trees_cost_no_rank_more_than_four_half_vectors() -> None:
    numel = 1000

    def body(comm: Comm) -> tuple[int, int]:
        relay = Striped(comm, double_binary_trees(comm.size), numel)
        before = comm.traffic.sent, comm.traffic.messages
        relay(torch.zeros(numel))
        return comm.traffic.sent - before[0], comm.traffic.messages - before[1]

    traffic = simulate(16, body)
    assert [messages for _, messages in traffic] == [2, *[4] * 14, 2]
    assert {sent for sent, _ in traffic} == {2 * 4 * 501, 4 * 4 * 501}  # vector and count in one message


def test_a_relay_keeps_one_message_an_edge() -> None:
    def body(comm: Comm) -> int:
        relay = RelaySum(comm, star(comm.size), 10)
        for _ in range(5):
            relay(torch.ones(10))
        return len(relay.state())

    assert simulate(5, body) == [4, 1, 1, 1, 1]


@pytest.mark.parametrize("delay", DELAYS)
def test_a_relay_goes_on_from_its_state(delay: str) -> None:
    trees = double_binary_trees(6)

    def body(comm: Comm, stop: int) -> Tensor:
        relay, total = Striped(comm, trees, 5, torch.float64, delay), torch.zeros(0)
        for t in range(10):
            if t == stop:
                state = {name: block.clone() for name, block in relay.state().items()}
                relay = Striped(comm, trees, 5, torch.float64, delay)
                relay.restore(state)
            total = torch.cat([part.clone() for part, _ in relay(vector(comm.rank, t))])
        return total

    for whole, resumed in zip(simulate(6, body, -1), simulate(6, body, 4), strict=True):
        assert torch.equal(whole, resumed)


@pytest.mark.parametrize("n", [8, 16])
def test_relayed_mean_estimation_is_as_good_as_all_samples_together(n: int) -> None:
    steps, tree = 60, chain(n)

    def body(comm: Comm) -> float:
        estimation = MeanEstimation(Striped(comm, [tree], 1, torch.float64), 1)
        for sample in mean_samples(comm.rank, steps):
            estimate = estimation(sample.view(1))
        return float(estimate)

    samples, late = [mean_samples(rank, steps) for rank in range(n)], delays(tree, "synchronous")
    for i, estimate in enumerate(simulate(n, body)):
        arrived = torch.cat([samples[j][: steps - int(late[i, j])] for j in range(n)])
        assert estimate == pytest.approx(float(arrived.mean()), abs=1e-12)  # another order of summation
        assert abs(estimate - 1) < 5 / (n * steps) ** 0.5  # five standard deviations


def test_a_relay_refuses_what_is_no_tree_of_its_ranks() -> None:
    with pytest.raises(TopologyError, match="needs a tree, got Graph"):
        simulate(5, lambda comm: RelaySum(comm, ring(5), 1))
    with pytest.raises(TopologyError, match="5 nodes, but there are 4 ranks"):
        simulate(4, lambda comm: RelaySum(comm, chain(5), 1))
    with pytest.raises(ParameterError, match="synchronous, overlapped, got 'overlaped'"):
        simulate(3, lambda comm: RelaySum(comm, chain(3), 1, delay="overlaped"))
