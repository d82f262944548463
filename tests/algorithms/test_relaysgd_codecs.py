import functools
from typing import Any

import pytest
import torch

from mpisign import RelaySGD, simulate, testing
from mpisign.comm import Comm, LossyComm
from mpisign.errors import ConfigError, DisagreementError, ParameterError
from mpisign.quadratics import RandomQuadratics

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

CODECS = ["float16", "bfloat16", "qsgd:16", "qsgd:4:max", "topk:0.3", "sign"]


@pytest.mark.parametrize("codec", ["sign", "qsgd:4"])
@pytest.mark.parametrize("settings", [{}, {"topology": "chain", "delay": "overlapped", "fill": "counts"}], ids=str)
def test_compressed_relays_keep_the_contract(codec: str, settings: dict[str, Any]) -> None:
    testing.check_algorithm(functools.partial(RelaySGD, codec=codec, **settings), ranks=(2, 3))


@pytest.mark.parametrize("codec", CODECS)
def test_workers_with_different_data_find_their_common_optimum_through_a_codec(codec: str) -> None:
    problem = RandomQuadratics(6, heterogeneity=1, distance=10, mu=0.5)

    def body(comm: Comm) -> float:
        x = torch.nn.Parameter(torch.zeros(10, dtype=torch.float64))
        optimizer = RelaySGD([x], lr=0.3, momentum=0.0, topology="binary_tree", codec=codec, comm=comm)
        for _ in range(500):
            x.grad = problem.gradient(comm.rank, x.detach())
            optimizer.step()
        return problem.suboptimality(comm.allgather(x.detach()))

    start = problem.suboptimality(torch.zeros(6, 10, dtype=torch.float64))
    assert abs(simulate(6, body)[0]) < 1e-9 * start  # workers' own optima are as far apart as the start is away


@pytest.mark.parametrize("codec, share", [("float16", 0.51), ("qsgd:16", 0.17), ("sign", 0.04)])
def test_messages_are_as_short_as_the_codec_says(codec: str, share: float) -> None:
    def body(comm: Comm, **settings: Any) -> int:
        x = torch.nn.Parameter(torch.zeros(10_000))
        optimizer = RelaySGD([x], comm=comm, **settings)
        before = comm.traffic.sent
        for _ in range(3):
            x.grad = torch.ones_like(x)
            optimizer.step()
        return comm.traffic.sent - before

    plain, short = simulate(4, body), simulate(4, lambda comm: body(comm, codec=codec))
    assert all(0.5 * share * one < other < share * one for one, other in zip(plain, short, strict=True))


@pytest.mark.parametrize(
    "settings, error, words",
    [
        ({"codec": "zip"}, ConfigError, "no such codec"),
        ({"codec": "qsgd:0"}, ParameterError, "levels"),
        ({"codec": "sign", "seed": -1}, ParameterError, "seed"),
        ({"seed": 1.5}, ParameterError, "seed"),
    ],
)
def test_what_is_wrong_on_one_rank_is_raised_on_all(settings: dict[str, Any], error: type, words: str) -> None:
    def body(comm: Comm) -> str:
        with pytest.raises(error) as caught:
            RelaySGD([torch.nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank == 1 else {}))
        return str(caught.value)

    assert all(words in message for message in simulate(3, body))


def test_changes_must_arrive_so_a_network_that_loses_messages_is_refused() -> None:
    with pytest.raises(ParameterError, match="loses messages"):
        simulate(2, lambda comm: RelaySGD([torch.zeros(1)], codec="sign", comm=LossyComm(comm, 0.1)))


def test_ranks_with_different_codecs_are_told_so() -> None:
    with pytest.raises(DisagreementError):
        simulate(3, lambda comm: RelaySGD([torch.zeros(1)], codec="sign" if comm.rank else "float16", comm=comm))
