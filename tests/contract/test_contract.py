"""The public contract checks over everything in the registry, and proofs that they can fail."""

import numpy as np
import pytest
import torch

from mpisign import SGD, Signum, registry, simulate, testing
from mpisign.attacks import Attack
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


def test_the_partition_contract_finds_a_sample_dealt_twice() -> None:
    with pytest.raises(AssertionError, match="dealt twice"):
        testing.check_partition(lambda labels, workers, seed, argument: [np.arange(len(labels))] * workers)


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
