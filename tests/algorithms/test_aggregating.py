"""SGD and Adam with codecs and aggregators."""

import math

import numpy as np
import pytest
import torch
from protocols import batch, fit, small_model
from torch import nn

from mpisign import SGD, Adam, checksum, simulate
from mpisign.comm import Comm
from mpisign.errors import ConfigError, DisagreementError, ParameterError, QuorumError

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

SETTINGS = [
    {},
    {"codec": "qsgd:4"},
    {"codec": "qsgd:1:max", "two_way": True},
    {"codec": "float16"},
    {"codec": "topk:0.1", "two_way": True},
    {"aggregator": "median"},
    {"aggregator": "trimmed_mean:0.2", "codec": "bfloat16"},
]


def accuracy(model: nn.Module) -> float:
    x, y = batch(99, 99, size=500)
    return float((model(x).argmax(1) == y).float().mean())


def train(comm: Comm, kind: type, steps: int, **settings) -> nn.Module:
    model = small_model(comm.rank)
    optimizer = kind(model.parameters(), comm=comm, **settings)
    for step in range(steps):
        x, y = batch(comm.rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize(
    "kind, settings", [*((SGD, chosen) for chosen in SETTINGS[1:5]), (Adam, {}), (Adam, {"codec": "qsgd:4"})], ids=str
)
def test_three_ranks_learn_what_labels_mean(kind: type, settings: dict) -> None:
    lr = 0.05 if kind is SGD else 0.01
    assert min(simulate(3, lambda comm: accuracy(train(comm, kind, 120, lr=lr, **settings)))) > 0.85


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_runs_repeat_to_the_bit_on_all_ranks(size: int, settings: dict) -> None:
    ends = [simulate(size, lambda comm: fit(comm, SGD, steps=3, **settings)) for _ in range(2)]
    assert ends[0] == ends[1] == [ends[0][0]] * size


def test_a_seed_names_the_coins_of_a_codec_and_each_rank_has_its_own() -> None:
    def ends(seed: int) -> int:
        return simulate(3, lambda comm: fit(comm, SGD, steps=5, codec="qsgd:1", seed=seed))[0]

    assert ends(0) == ends(0) != ends(1)

    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.zeros(2000))
        optimizer = SGD([p], lr=1.0, momentum=0.0, codec="qsgd:1:max", comm=comm)
        p.grad = torch.full((2000,), 0.5)
        p.grad[0] = 1.0
        optimizer.step()
        return float((p == -0.5).float().mean())

    # two workers' coins differ in half of the cases: eight standard deviations of a share of 2000
    assert simulate(2, body)[0] == pytest.approx(0.5, abs=8 * math.sqrt(0.25 / 2000))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_one_rank_of_adam_is_torchs_adam_to_the_bit(decay: float) -> None:
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": decay}
    model = small_model(0)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False, **settings)
    for step in range(20):
        x, y = batch(0, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    ends = simulate(1, lambda comm: checksum(train(comm, Adam, 20, **settings).parameters()))
    assert ends == [checksum(model.parameters())]


@pytest.mark.parametrize("size", [2, 3, 7])
def test_workers_with_a_batch_each_equal_one_adam_with_all_of_them(size: int) -> None:
    def body(comm: Comm) -> list[float]:
        parameters = [nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(3))]
        optimizer = Adam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.1}], comm=comm)
        for step in range(10):
            parameters[0].grad = torch.full((5,), float(comm.rank + step))
            parameters[1].grad = None if step % 2 else torch.full((3,), 1.0)  # all skip it alike, and its bias stays
            optimizer.step()
        return torch.cat([p.detach() for p in parameters]).tolist()

    parameters = [nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(3))]
    optimizer = torch.optim.Adam([{"params": parameters[:1], "lr": 1e-3}, {"params": parameters[1:], "lr": 0.1}])
    for step in range(10):
        parameters[0].grad = torch.full((5,), step + (size - 1) / 2)
        parameters[1].grad = None if step % 2 else torch.full((3,), 1.0)
        optimizer.step()
    alone = torch.cat([p.detach() for p in parameters]).tolist()
    for together in simulate(size, body):
        assert together == pytest.approx(alone, rel=1e-5)  # means of small whole numbers, ten steps in float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_adam_trains_half_precision_through_float32(dtype: torch.dtype) -> None:
    def body(comm: Comm) -> list[float]:
        p = nn.Parameter(torch.ones(3, dtype=dtype))
        optimizer = Adam([p], lr=1e-4, comm=comm)
        for _ in range(100):
            p.grad = torch.tensor([1e-4, 1.0, -1e-4], dtype=dtype)  # squares are 0 in half precision
            optimizer.step()
        return p.tolist()

    # 100 steps of 1e-4 each, of which half precision alone would round every one away; its own rounding: 2^-8
    assert simulate(2, body) == [pytest.approx([0.99, 0.99, 1.01], abs=2.0**-8)] * 2


@pytest.mark.parametrize("settings", [{}, {"codec": "topk:0.1", "two_way": True}, {"codec": "qsgd:2"}], ids=str)
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_resumed_run_ends_with_the_same_bits(kind: type, settings: dict, tmp_path) -> None:
    def body(comm: Comm, stop: int) -> int:
        model = small_model()
        model[2].half()
        optimizer = kind(model.parameters(), comm=comm, **settings)
        for step in range(6):
            if step == stop:
                torch.save(optimizer.state_dict(), tmp_path / f"{comm.rank}.pt")
                optimizer = kind(model.parameters(), lr=9.0, comm=comm, **settings)
                optimizer.load_state_dict(torch.load(tmp_path / f"{comm.rank}.pt", weights_only=True))
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model[2](model[1](model[0](x)).half()).float(), y).backward()
            optimizer.step()
        return checksum(model.parameters())

    assert simulate(2, body, 3) == simulate(2, body, -1)


def test_momentum_comes_after_the_aggregate() -> None:
    def body(comm: Comm) -> list[float]:
        p, places = nn.Parameter(torch.zeros(1)), []
        optimizer = SGD([p], lr=1.0, momentum=0.5, aggregator="median", comm=comm)
        for step in range(3):
            p.grad = torch.tensor([1.0 if comm.rank == step else 0.0])  # the median is 0, the momenta's would not be
            optimizer.step()
            places.append(p.item())
        return places

    assert simulate(3, body) == [[0.0, 0.0, 0.0]] * 3


@pytest.mark.parametrize("aggregator", ["median", "trimmed_mean:0.45", "krum:2"])
def test_two_of_seven_who_shout_are_outvoted_and_own_the_mean(aggregator: str) -> None:
    def body(comm: Comm, aggregator: str) -> float:
        p = nn.Parameter(torch.full((50,), 3.0))
        optimizer = SGD([p], lr=0.1, momentum=0.0, aggregator=aggregator, comm=comm)
        noise = np.random.default_rng(comm.rank)
        for _ in range(60):
            honest = p.detach() + torch.from_numpy(noise.standard_normal(50).astype(np.float32)) / 10
            p.grad = torch.full((50,), -1e3) if comm.rank >= 5 else honest
            optimizer.step()
        return float(p.detach().abs().max())

    # the gradient is that of x²/2: 0.9^60 is 0.002, and the noise of 0.1 is averaged by steps of 0.1
    assert max(simulate(7, body, aggregator)) < 0.2
    assert min(simulate(7, body, "mean")) > 100


def test_nan_abstains_whatever_the_codec() -> None:
    for settings in SETTINGS[1:]:

        def body(comm: Comm, settings: dict = settings) -> tuple[bool, int, bool]:
            p = nn.Parameter(torch.zeros(3))
            optimizer = SGD([p], comm=comm, **settings)
            p.grad = torch.tensor([1.0, math.nan if comm.rank == 1 else 1.0, 2.0])
            optimizer.step()
            return bool(p.isfinite().all() and p.any()), optimizer.report.voters, optimizer.report.finite

        with pytest.warns(RuntimeWarning, match="rank 1: the gradient of step 0 is not finite"):
            assert simulate(4, body) == [(True, 3, rank != 1) for rank in range(4)]


def test_doubles_pass_through_a_codec_as_float32() -> None:
    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = SGD([p], lr=1.0, momentum=0.0, aggregator="median", comm=comm)
        p.grad = torch.tensor([1 + 1e-12], dtype=torch.float64)
        optimizer.step()
        return p.item()

    assert simulate(2, body) == [-1.0] * 2


def test_a_function_serves_as_codec_or_aggregator() -> None:
    from mpisign.codecs.qsgd import QSGD

    named = simulate(3, lambda comm: fit(comm, SGD, steps=3, codec="qsgd:4", aggregator="median"))
    from mpisign import aggregators

    given = simulate(
        3, lambda comm: fit(comm, SGD, steps=3, codec=lambda numel: QSGD(numel, 4), aggregator=aggregators.median)
    )
    assert given == named


@pytest.mark.parametrize(
    "settings, error, words",
    [
        ({"codec": "qsdg:4"}, ConfigError, "no such codec \\(did you mean 'qsgd'"),
        ({"codec": "qsgd:0"}, ParameterError, "levels must be a whole number"),
        ({"codec": "float32:4"}, ParameterError, "codec float32:4: "),
        ({"codec": lambda numel: 3}, ParameterError, r"wanted a mpisign.codecs.Codec, got 3"),
        ({"aggregator": "krum:1"}, QuorumError, "krum:1 needs at least 5 workers .*, got 3"),
        ({"aggregator": "krum"}, ParameterError, "liars"),
        ({"aggregator": "trimmed_mean:0.5"}, ParameterError, "share"),
        ({"aggregator": lambda rows: rows}, ParameterError, r"wanted float32\[2\] for float32\[n, 2\]"),
        ({"two_way": 1}, ParameterError, "two_way must be True or False"),
        ({"seed": -1}, ParameterError, "seed must be a whole number"),
    ],
)
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_what_cannot_be_is_said_on_all_ranks_at_construction(
    kind: type, settings: dict, error: type, words: str
) -> None:
    def body(comm: Comm) -> None:
        with pytest.raises(error, match=words):
            kind([nn.Parameter(torch.zeros(1))], comm=comm, **settings)

    simulate(3, body)


@pytest.mark.parametrize("settings", [{"betas": (0.9, 1.0)}, {"betas": (0.9,)}, {"eps": 0.0}, {"eps": "x"}], ids=str)
def test_adam_checks_its_own_numbers(settings: dict) -> None:
    with pytest.raises(ParameterError, match=r"betas must be|eps must be"):
        simulate(1, lambda comm: Adam([nn.Parameter(torch.zeros(1))], comm=comm, **settings))


def test_ranks_with_different_codecs_disagree() -> None:
    def body(comm: Comm) -> None:
        with pytest.raises(DisagreementError):
            SGD([nn.Parameter(torch.zeros(1))], codec="qsgd:4" if comm.rank else "qsgd:2", comm=comm)

    simulate(2, body)
