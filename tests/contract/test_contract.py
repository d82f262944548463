"""The public contract checks over everything in the registry, and proofs that they can fail."""

import functools

import numpy as np
import pytest
import torch

from mpisign import SGD, Signum, aggregators, codecs, registry, simulate, testing
from mpisign.attacks import Attack
from mpisign.codecs.floats import Float16
from mpisign.codecs.qsgd import QSGD
from mpisign.codecs.topk import TopK
from mpisign.collectives import ServerVote
from mpisign.tasks.base import Task

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


@pytest.mark.parametrize("name", registry.BUILT_IN["algorithm"])
def test_every_algorithm_keeps_the_contract(name: str) -> None:
    testing.check_algorithm(registry.load("algorithm", name))


@pytest.mark.parametrize("name", registry.BUILT_IN["vote"])
def test_every_vote_keeps_the_contract(name: str) -> None:
    testing.check_vote(registry.load("vote", name))


@pytest.mark.parametrize("name", registry.BUILT_IN["partition"])
def test_every_partition_keeps_the_contract(name: str) -> None:
    testing.check_partition(registry.load("partition", name), 0.5 if name == "dirichlet" else None)


@pytest.mark.parametrize("name", registry.BUILT_IN["attack"])
def test_every_attack_keeps_the_contract(name: str) -> None:
    testing.check_attack(registry.load("attack", name))


ARGUMENTS = {"qsgd": ["qsgd:1", "qsgd:4", "qsgd:127:max"], "topk": ["topk:0.1", "topk:1"]}


@pytest.mark.parametrize("spec", [s for name in registry.BUILT_IN["codec"] for s in ARGUMENTS.get(name, [name])])
def test_every_codec_keeps_the_contract(spec: str) -> None:
    testing.check_codec(lambda numel: codecs.build(spec, numel))


@pytest.mark.parametrize("name", registry.BUILT_IN["aggregator"])
def test_every_aggregator_keeps_the_contract(name: str) -> None:
    spec = {"krum": "krum:2", "trimmed_mean": "trimmed_mean:0.2"}.get(name, name)
    testing.check_aggregator(aggregators.build(spec))


@pytest.mark.parametrize(
    "settings", [{"codec": "topk:0.3", "two_way": True}, {"codec": "qsgd:3", "aggregator": "median"}]
)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_algorithms_with_a_codec_keep_the_contract(name: str, settings: dict) -> None:
    testing.check_algorithm(functools.partial(registry.load("algorithm", name), **settings), ranks=(1, 3))


@pytest.mark.parametrize("name", registry.BUILT_IN["task"])
def test_every_task_names_a_model_that_exists(name: str) -> None:
    task = registry.load("task", name)()
    assert isinstance(task, Task)
    assert task.default_model in registry.BUILT_IN["model"]


class Forgetful(Signum):
    """A Signum that loses its momentum in state_dict."""

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.memory.zero_()


class Selfish(SGD):
    """An SGD whose ranks don't talk."""

    def update(self):
        torch.optim.SGD.step(self)
        return self.report


class Undecided(ServerVote):
    """A vote that gets ties wrong."""

    def _decide(self, ballot, key):
        super()._decide(ballot, key + 1)


class Stubborn(Signum):
    """A Signum that ignores its weight decay."""

    def __init__(self, params, lr=1e-3, momentum=0.9, weight_decay=0.0, comm=None):
        super().__init__(params, lr, momentum, 0.0, comm=comm)


@pytest.mark.parametrize(
    "broken, words",
    [(Forgetful, "resumed"), (Selfish, "voters|different"), (Stubborn, "weight_decay=0.3 has no effect")],
)
def test_the_algorithm_contract_finds_what_is_broken(broken, words) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_algorithm(broken, ranks=(2, 3))


def test_the_vote_contract_finds_a_wrong_coin() -> None:
    with pytest.raises(AssertionError, match="wrong verdict"):
        testing.check_vote(Undecided, ranks=(2,))


class Faulty(QSGD):
    """A QSGD with the fault that `how` names."""

    how = ""

    def encode(self, vector, key):
        if self.how == "changes its input":
            vector *= 2
        if self.how == "forgets its key":
            self.calls = key = getattr(self, "calls", 0) + 1
        if self.how == "drops the largest":  # as a known implementation does with the max norm
            vector = torch.where(vector.abs() < (vector.abs().max() if self.numel else 0), vector, 0)
        return super().encode(vector, key)

    def decode(self, message):
        if self.how == "eats its message":
            message[-1] = 0
        back = super().decode(message)
        if self.how == "shrinks":
            back *= 0.99
        return back.double() if self.how == "returns doubles" else back


class Forgetting(TopK):
    """A top-k whose message depends on what it decoded before."""

    def decode(self, message):
        self.share = getattr(self, "share", 1.0) / 2
        return super().decode(message) * self.share


@pytest.mark.parametrize(
    "fault, words",
    [
        ("changes its input", "encode changed its input"),
        ("forgets its key", "gives other bits"),
        ("drops the largest", "it is biased"),
        ("shrinks", "it is biased|encoded to other bits"),
        ("eats its message", "decode changed its input"),
        ("returns doubles", "wanted finite float32"),
    ],
)
def test_the_codec_contract_finds_what_is_broken(fault: str, words: str) -> None:
    broken = type("Broken", (Faulty,), {"how": fault})
    with pytest.raises(AssertionError, match=words):
        testing.check_codec(lambda numel: broken(numel, 4))


class Overflowing(Float16):
    """A float16 that lets anything pass."""

    def accepts(self, vector):
        return True


@pytest.mark.parametrize(
    "make, words",
    [
        (Overflowing, "it accepts a vector with"),
        (lambda numel: Forgetting(numel, 0.1), "no memory of its own|lost for good"),
        (lambda numel: QSGD(65, 4), "wanted finite float32|wanted a message|does not match"),
    ],
)
def test_the_codec_contract_finds_other_faults(make, words: str) -> None:
    with pytest.raises((AssertionError, RuntimeError), match=words):
        testing.check_codec(make)


@pytest.mark.parametrize(
    "broken, words",
    [
        (lambda rows: rows.sum(0), "outside of what the workers say"),
        (lambda rows: rows[0], "in another order"),
        (lambda rows: rows.double().mean(0), "wanted finite float32"),
        (lambda rows: rows.mul_(0.5).mean(0), "changed its rows"),
        (lambda rows: rows.mean(0) * torch.rand(()), "other bits|outside|equal workers"),
        (lambda rows: rows.sort(0).values[1:-1].sum(0) / (len(rows) - 2.1), "outside|equal workers"),
    ],
)
def test_the_aggregator_contract_finds_what_is_broken(broken, words) -> None:
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=words):
        testing.check_aggregator(broken)


def test_the_partition_contract_finds_a_sample_dealt_twice() -> None:
    with pytest.raises(AssertionError, match="dealt more often"):
        testing.check_partition(
            lambda labels, workers, seed, argument: [np.arange(len(labels)), *[[0]] * (workers - 1)]
        )


@pytest.mark.parametrize(
    "lie, words",
    [
        (lambda g: g.neg_(), "changed its input"),
        (lambda g: g.double(), "but the attack says"),
        (lambda g: g.reshape(-1), "but the attack says"),
        (lambda g: g * np.random.default_rng().random(), "in a second run"),
        (lambda g: g * torch.rand(()).to(g), "global generator"),
    ],
)
def test_the_attack_contract_finds_what_is_broken(lie, words) -> None:
    class Broken(Attack):
        def __call__(self, gradients, step):
            return [None if gradient is None else lie(gradient) for gradient in gradients]

    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=words):
        testing.check_attack(Broken, ranks=(2,))


def test_the_odd_model_is_odd() -> None:
    model = testing.odd_model()
    assert {p.dtype for p in model.values()} == {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    assert {p.numel() for p in model.values()} >= {0, 1, 64}
    assert not model["transposed"].is_contiguous()
    assert not model["frozen"].requires_grad
    assert simulate(1, lambda comm: comm.size) == [1]
