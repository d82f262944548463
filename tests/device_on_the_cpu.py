"""Whole steps as on a GPU, without one; test_device.py runs this, in a Python of its own with Numba's simulator.

Parameters of the CPU stand for those of a device: the kernels' text for GPUs runs on them, and ballots and verdicts take the way
through buffers and streams that notes who waits for whom. Everything must come out as on the CPU, to the bit.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_cuda import FakeCuda, pinned

from mpisign import kernels
from mpisign.algorithms import base
from mpisign.algorithms.adam import Adam
from mpisign.algorithms.lion import Lion
from mpisign.algorithms.sgd import SGD
from mpisign.algorithms.signum import SignSGD, Signum
from mpisign.algorithms.weights import checksum
from mpisign.comm import simulate
from mpisign.comm.buffers import Staging
from mpisign.kernels import cuda
from mpisign.testing.odd_model import odd_model

TREATED = ("sign_ballot", "descend", "unpack", "disagreement", "l2_norm")


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let what is constructed from then on believe that it is on a GPU."""

    def switch() -> None:
        monkeypatch.setattr(base, "staging_for", lambda device: Staging(device, FakeCuda(), pinned))
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
        for name in TREATED:
            monkeypatch.setattr(kernels, name, as_on_the_cpu(name))

    return switch


def as_on_the_cpu(name: str) -> Callable[..., Any]:
    def treat(*arguments: Any) -> Any:
        if name == "sign_ballot" and len(arguments) == 8:
            arguments = (*arguments, kernels.NOTHING_KEPT)
        return getattr(cuda, name)(*arguments)

    return treat


def trained(kind: Any, ranks: int, steps: int = 2, staged: bool = False, **settings: Any) -> list[Any]:
    """Checksums and reports of each rank."""

    def train(comm: Any) -> Any:
        model = list(odd_model().values())
        optimizer = kind(model, comm=comm, **settings)
        assert (optimizer.staging is not None) == staged
        random, found = torch.Generator().manual_seed(comm.rank), []
        for step in range(steps):
            for index, p in enumerate(model):
                gone = (index + comm.rank + step) % 5 == 0
                p.grad = None if gone else torch.randn(p.shape, generator=random).to(p.dtype)
                if p.grad is not None and index == 1 and p.grad.numel():
                    p.grad.view(-1)[0] = float("nan") if step == 1 and comm.rank == 0 else 0.0
            optimizer.step()
            report = optimizer.report
            found.append((checksum(model), report.voters, report.agreement, report.finite))
        state = optimizer.state_dict()["state"]
        tensors = [value for kept in state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
        return found, checksum(tensors)

    return simulate(ranks, train)


CASES = [
    pytest.param(Signum, {"tie": "abstain", "zero": "abstain", "overlap": True, "bucket": 64}, id="Signum, overlap"),
    pytest.param(SGD, {}, id="SGD"),
    pytest.param(Signum, {"weight_decay": 0.1, "trust": 0.01}, id="Signum, trust", marks=pytest.mark.slow),
    pytest.param(Signum, {"vote": "sharded", "quarantine": 0.001}, id="Signum, sharded", marks=pytest.mark.slow),
    pytest.param(SignSGD, {"vote": "tree", "zero": "plus"}, id="SignSGD, tree", marks=pytest.mark.slow),
    pytest.param(Lion, {"lr": 1e-2}, id="Lion", marks=pytest.mark.slow),
    pytest.param(Adam, {}, id="Adam", marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore:rank 0")
@pytest.mark.parametrize("kind, settings", CASES)
def test_a_step_on_a_device_has_the_bits_of_one_on_the_cpu(
    kind: Any, settings: dict[str, Any], on_device: Callable[[], None]
) -> None:
    expected = trained(kind, 2, **settings)
    on_device()
    assert repr(trained(kind, 2, staged=True, **settings)) == repr(expected)  # NaN equals itself there


def test_a_warning_about_a_gradient_comes_a_step_late_and_names_its_step(on_device: Callable[[], None]) -> None:
    on_device()

    def train(comm: Any) -> None:
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = Signum([p], comm=comm)
        for value in (1.0, float("nan"), 1.0):
            p.grad = torch.full((3,), value)
            optimizer.step()

    with pytest.warns(RuntimeWarning, match="gradient of step 1 is not finite"):
        simulate(1, train)
