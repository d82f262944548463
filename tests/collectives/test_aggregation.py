"""Aggregates through codecs: what travels, who is counted, and that every rank ends with the same bits."""

import math

import numpy as np
import pytest
import torch

from mpisign import aggregators, codecs, kernels, seeding, simulate
from mpisign.collectives.aggregation import Aggregation
from mpisign.comm import Comm

NUMELS = [0, 1, 63, 64, 65, 1001]
RANKS = [1, 2, 3, 4, 7]
WAYS = [
    ("float32", False),
    ("float16", False),
    ("bfloat16", True),
    ("qsgd:1", False),
    ("qsgd:4", True),
    ("qsgd:16:max", True),
    ("topk:0.1", False),
    ("topk:0.1", True),
]


def vectors(rank: int, step: int = 0) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(numel, generator=random) for numel in NUMELS]


def key(rank: int, step: int, seed: int = 5) -> int:
    return kernels.stream(seeding.key(seed, rank, "codec"), step)


def run(size: int, codec: str, steps: int = 3, blocks=vectors, **settings) -> list[list[bytes]]:
    """The aggregates' bytes at every step, on every rank."""

    def body(comm: Comm) -> list[bytes]:
        mean = Aggregation(comm, NUMELS, codec, seed=5, **settings)
        ends = []
        for step in range(steps):
            parts, _ = mean(blocks(comm.rank, step), step)
            ends.append(b"|".join(b"-" if part is None else part.numpy().tobytes() for part in parts))
        return ends

    return simulate(size, body)


@pytest.mark.parametrize("codec, two_way", WAYS)
@pytest.mark.parametrize("size", RANKS)
def test_all_ranks_end_with_the_same_bits_and_so_does_a_second_run(size: int, codec: str, two_way: bool) -> None:
    first = run(size, codec, two_way=two_way)
    assert first == [first[0]] * size
    assert run(size, codec, two_way=two_way) == first


@pytest.mark.parametrize("codec, two_way", [way for way in WAYS if way[0] != "topk:0.1"])
@pytest.mark.parametrize("size", RANKS)
def test_it_is_the_mean_of_decoded_vectors_in_rank_order_the_servers_own_among_them(
    size: int, codec: str, two_way: bool
) -> None:
    way = codecs.build(codec, sum(NUMELS))
    for step, end in enumerate(run(size, codec, two_way=two_way)[0]):
        rows = [way.decode(way.encode(torch.cat(vectors(rank, step)), key(rank, step))) for rank in range(size)]
        mean = aggregators.mean(torch.stack(rows))
        if two_way or way.both_ways:
            mean = way.decode(way.encode(mean, key(seeding.SHARED, step)))
        assert end == b"|".join(part.numpy().tobytes() for part in torch.split(mean, NUMELS))


@pytest.mark.parametrize("size", [2, 3, 7])
def test_one_way_and_two_ways_send_the_bytes_they_should(size: int) -> None:
    numel, header = 100_000, 8

    def body(comm: Comm, codec: str, two_way: bool) -> tuple[int, int]:
        mean = Aggregation(comm, [numel], codec, two_way=two_way)
        before = comm.traffic.sent, comm.traffic.received
        mean([torch.ones(numel)])
        assert mean.nbytes == header + codecs.build(codec, numel).nbytes
        return comm.traffic.sent - before[0], comm.traffic.received - before[1]

    quantised = header + 8 * math.ceil((32 + numel // 17 * 54 + 20) / 64)  # 17 digits in 54 bits, and 6 more in 20
    half, dense, few, count = header + 2 * numel, header + 4 * numel, header + 8 * 1000, 8
    for codec, two_way, up, down in (
        ("float32", False, dense, dense),
        ("float32", True, dense, dense),
        ("float16", False, half, half),
        ("bfloat16", True, half, half),
        ("qsgd:4", False, quantised, dense),
        ("qsgd:4", True, quantised, quantised),
        ("topk:0.01", False, few, dense),
        ("topk:0.01", True, few, few),
    ):
        down += count
        assert simulate(size, body, codec, two_way) == [
            ((size - 1) * down, (size - 1) * up),
            *[(up, down)] * (size - 1),
        ]


def test_who_has_nothing_or_nan_is_left_out_and_a_block_is_for_those_who_have_it() -> None:
    def body(comm: Comm) -> tuple[list[object], bool, int]:
        said = {
            0: [torch.tensor([1.0, 2.0]), None, None],
            1: [None, None, None],
            2: [torch.tensor([3.0, math.nan]), torch.tensor([7.0]), None],
            3: [torch.tensor([5.0, 6.0]), torch.tensor([9.0]), None],
        }[comm.rank]
        mean = Aggregation(comm, [2, 1, 3], "float32", "median")
        parts, accepted = mean(said)
        return [None if part is None else part.tolist() for part in parts], accepted, mean.voters

    ends = simulate(4, body)
    assert [end[0] for end in ends] == [[[3.0, 4.0], [9.0], None]] * 4
    assert [end[1] for end in ends] == [True, True, False, True]
    assert [end[2] for end in ends] == [2] * 4


def test_nobody_with_anything_gives_nothing() -> None:
    def body(comm: Comm) -> tuple[list[object], bool, int]:
        mean = Aggregation(comm, [2, 1], "qsgd:4", two_way=True)
        parts, accepted = mean([None, None])
        return parts, accepted, mean.voters

    assert simulate(3, body) == [([None, None], True, 0)] * 3


@pytest.mark.parametrize("aggregator", ["mean", "median", "trimmed_mean:0.3", "krum:0"])
def test_a_number_too_large_for_a_half_float_makes_its_worker_abstain(aggregator: str) -> None:
    def body(comm: Comm) -> tuple[list[float], bool, int]:
        mean = Aggregation(comm, [2], "float16", aggregator)
        parts, accepted = mean([torch.tensor([70_000.0 if comm.rank == 1 else 65_504.0, 1.0])])
        return parts[0].tolist(), accepted, mean.voters

    assert simulate(4, body) == [([65_504.0, 1.0], rank != 1, 3) for rank in range(4)]


def test_a_sum_that_overflows_gives_nothing_instead_of_infinity() -> None:
    def body(comm: Comm) -> list[object]:
        return Aggregation(comm, [1], "qsgd:4:max")([torch.tensor([3e38])])[0]

    assert simulate(1, body)[0][0].item() == np.float32(3e38)
    assert simulate(2, body) == [[None]] * 2


def test_a_message_that_decodes_to_nan_is_left_out() -> None:
    class Lying(codecs.Codec):
        def __init__(self, numel: int) -> None:
            super().__init__(numel, numel)

        def encode(self, vector: torch.Tensor, key: int) -> torch.Tensor:
            return torch.from_numpy(vector.numpy().astype(np.uint64))

        def decode(self, message: torch.Tensor) -> torch.Tensor:
            numbers = torch.from_numpy(message.numpy().astype(np.float32))
            return torch.where(numbers == 13, math.nan, numbers)

    def body(comm: Comm) -> tuple[list[float], int]:
        mean = Aggregation(comm, [2], Lying)
        parts, _ = mean([torch.tensor([13.0 if comm.rank == 2 else 4.0, 2.0])])
        return parts[0].tolist(), mean.voters

    assert simulate(3, body) == [([4.0, 2.0], 2)] * 3


def test_too_few_for_krum_change_nothing_and_it_is_said_once() -> None:
    def body(comm: Comm) -> list[tuple[object, int]]:
        mean, ends = Aggregation(comm, [2, 3], "float32", "krum:1"), []
        for step in range(3):
            absent = comm.rank == 0 and step < 2
            parts, _ = mean([None if absent else torch.ones(2), torch.ones(3)], step)
            ends.append((parts[0] is None, parts[1] is None, mean.voters))
        return ends

    with pytest.warns(RuntimeWarning, match="krum:1 needs at least 5 workers") as caught:
        ends = simulate(5, body)
    assert ends == [[(True, False, 5), (True, False, 5), (False, False, 5)]] * 5
    assert len(caught) == 1


def test_krum_judges_all_blocks_of_the_same_workers_as_one_vector() -> None:
    def body(comm: Comm) -> list[list[float]]:
        lies = comm.rank == 2
        mean = Aggregation(comm, [1, 1], "float32", "krum:1")
        return [part.tolist() for part in mean([torch.ones(1), torch.full((1,), 99.0 if lies else 1.0 * comm.rank)])[0]]

    assert simulate(5, body) == [[[1.0], [2.0]]] * 5


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("size", RANKS)
def test_with_error_feedback_outputs_and_residuals_add_up_to_the_inputs_exactly(size: int, two_way: bool) -> None:
    scale = math.lcm(*range(1, 8))  # so that means of whole numbers are whole numbers too

    def body(comm: Comm) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        mean = Aggregation(comm, [150, 50], "topk:0.05", two_way=two_way)
        given, taken, random = torch.zeros(200), torch.zeros(200), np.random.default_rng(comm.rank)
        for step in range(40):
            vector = torch.from_numpy(scale * random.integers(-9, 10, 200).astype(np.float32))
            given += vector
            taken += torch.cat(mean(list(torch.split(vector, [150, 50])), step)[0])
        return given, taken, mean.residuals

    ends = simulate(size, body)
    owed = sum(end[2]["residual"] for end in ends) / size
    assert ("server_residual" in ends[0][2]) == two_way
    assert not any("server_residual" in end[2] for end in ends[1:])
    at_server = ends[0][2].get("server_residual", torch.zeros(200))
    assert owed.abs().max() > 0
    for _, taken, _ in ends:
        assert torch.equal(taken + owed + at_server, sum(end[0] for end in ends) / size)


def test_who_abstains_keeps_what_it_owes() -> None:
    def body(comm: Comm) -> tuple[bool, list[float]]:
        mean = Aggregation(comm, [3], "topk:0.3")
        mean([torch.tensor([3.0, 2.0, 1.0])], 0)
        before = mean.residuals["residual"].clone()
        mean([{0: torch.zeros(3), 1: None, 2: torch.full((3,), math.nan)}[comm.rank]], 1)
        return torch.equal(before, mean.residuals["residual"]), before.tolist()

    assert simulate(3, body) == [(False, [0, 2, 1]), (True, [0, 2, 1]), (True, [0, 2, 1])]
