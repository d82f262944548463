import itertools

import pytest
import torch
from torch import Tensor

from mpisign import codecs, seeding, simulate
from mpisign.collectives.differences import Differences
from mpisign.collectives.relay_sum import RelaySum
from mpisign.comm import Comm
from mpisign.topology import Tree, binary_tree, chain
from mpisign.topology.delays import delays

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

CODECS = ["float16", "bfloat16", "sign", "topk:0.1", "qsgd:16", "qsgd:1", "qsgd:4:max"]


def vector(rank: int, numel: int = 200) -> Tensor:
    return torch.randn(numel, dtype=torch.float64, generator=seeding.torch_generator(7, rank, "vector"))


def relayed(comm: Comm, tree: Tree, codec: str, steps: int, seed: int = 0) -> list[tuple[Tensor, int]]:
    """Relay the same vectors again and again."""
    own = vector(comm.rank)
    through = Differences(comm, tree.neighbors[comm.rank], codecs.build(codec, len(own)), own.dtype, seed=seed)
    relay = RelaySum(comm, tree, len(own), own.dtype, through=through)
    return [(relay(own).clone(), relay.count) for _ in range(steps)]


@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_change_arrives_in_the_end_whatever_the_codec(codec: str) -> None:
    tree, steps = binary_tree(6), 100 if codec.startswith("float") else 400
    total = sum(vector(j) for j in range(6))
    for sums in simulate(6, relayed, tree, codec, steps):
        first, last = (float((found - total).norm() / total.norm()) for found, _ in (sums[5], sums[-1]))
        # a message of qsgd:1 takes 1/(1 + √200) of the rest, and one of signs little of a rest that few coordinates make
        assert last < {"qsgd:1": 1e-3, "sign": 1e-2}.get(codec, 1e-6)
        assert last <= first / (1 if codec.endswith("float16") else 10)  # these need one message


@pytest.mark.parametrize("codec", CODECS)
def test_counts_are_exact(codec: str) -> None:
    tree = chain(5)
    late = delays(tree)
    for i, sums in enumerate(simulate(5, relayed, tree, codec, 7)):
        assert [count for _, count in sums] == [int((late[i] <= t).sum()) for t in range(7)]


def test_float32_is_exact_at_once_but_for_rounding() -> None:
    tree = chain(4)
    late, total = delays(tree), sum(vector(j) for j in range(4))
    for i, sums in enumerate(simulate(4, relayed, tree, "float32", 6)):
        found, _ = sums[int(late[i].max())]
        assert torch.allclose(found, total, rtol=0, atol=1e-6)  # differences are sent in float32


def test_both_ends_of_an_edge_know_the_same_bits() -> None:
    def body(comm: Comm) -> dict[str, Tensor]:
        through = Differences(comm, [1 - comm.rank], codecs.build("qsgd:4", 65), torch.float32)
        for step in range(5):
            message = torch.randn(66, generator=torch.Generator().manual_seed(10 * step + comm.rank))
            message[-1] = step
            (arrived,) = through.post({1 - comm.rank: message}).wait().values()
            assert arrived[-1] == step
        return through.state()

    one, other = simulate(2, body)
    assert torch.equal(one["to 1"], other["from 0"])
    assert torch.equal(other["to 0"], one["from 1"])
    assert one["to 1"].any()


def test_no_message_takes_an_estimate_farther_away() -> None:
    """Plain QSGD with one level adds noise of √200 times the difference: its estimates would run away."""

    def body(comm: Comm) -> list[float]:
        wanted = torch.cat([vector(comm.rank).float(), torch.ones(1)])
        through = Differences(comm, [1 - comm.rank], codecs.build("qsgd:1", 200), torch.float32)
        apart = []
        for _ in range(60):
            through.post({1 - comm.rank: wanted}).wait()
            apart.append(float((wanted[:-1] - through.state()[f"to {1 - comm.rank}"]).norm()))
        return apart

    for apart in simulate(2, body):
        assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(apart))
        assert apart[-1] < 0.2 * apart[0]


def test_what_the_codec_does_not_accept_is_not_sent() -> None:
    def body(comm: Comm) -> list[list[float]]:
        through, found = Differences(comm, [1 - comm.rank], codecs.build("float16", 2), torch.float32), []
        for value in (1.0, 1e6, float("nan"), 2.0):
            (arrived,) = through.post({1 - comm.rank: torch.tensor([value, 0.0, 1.0])}).wait().values()
            found.append(arrived.tolist())
        return found

    assert simulate(2, body) == [[[1, 0, 1], [1, 0, 1], [1, 0, 1], [2, 0, 1]]] * 2


def test_coins_are_named_by_the_seed() -> None:
    first, again, other = (simulate(3, relayed, chain(3), "qsgd:4", 3, seed) for seed in (0, 0, 1))
    same = [torch.equal(a[-1][0], b[-1][0]) for a, b in zip(first, again, strict=True)]
    changed = [torch.equal(a[-1][0], b[-1][0]) for a, b in zip(first, other, strict=True)]
    assert all(same)
    assert not any(changed)


def test_bytes_are_the_codecs_and_one_word() -> None:
    def body(comm: Comm) -> tuple[int, int]:
        through = Differences(comm, chain(3).neighbors[comm.rank], codecs.build("sign", 200), torch.float32)
        relay = RelaySum(comm, chain(3), 200, through=through)
        before = comm.traffic.sent
        relay(torch.zeros(200))
        return comm.traffic.sent - before, relay.nbytes

    assert simulate(3, body) == [(48, 48), (96, 48), (48, 48)]
