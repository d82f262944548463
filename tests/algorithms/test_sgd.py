import numpy as np
import pytest
import torch
from protocols import batch, small_model
from torch import nn

from mpisign import SGD, simulate
from mpisign.comm import Comm
from mpisign.errors import ParameterError

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_workers_with_a_batch_each_equal_one_with_all_of_them(size: int, nesterov: bool) -> None:
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": nesterov}

    def body(comm: Comm) -> torch.Tensor:
        model = small_model(comm.rank)
        optimizer = SGD(model.parameters(), comm=comm, **settings)
        for step in range(20):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    model = small_model(0)
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    for step in range(20):
        x, y = (torch.cat(parts) for parts in zip(*(batch(rank, step) for rank in range(size)), strict=True))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    alone = nn.utils.parameters_to_vector(model.parameters()).detach()
    for together in simulate(size, body):
        # float32 sums in another order, over 20 steps
        assert torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_the_mean_is_over_the_workers_that_have_a_gradient() -> None:
    def body(comm: Comm) -> tuple[list[float], int]:
        p = nn.Parameter(torch.zeros(2))
        optimizer = SGD([p], lr=1.0, momentum=0.0, comm=comm)
        values = {0: [2.0, 0.0], 1: None, 2: [4.0, 1.0], 3: [float("nan"), 0.0]}[comm.rank]
        p.grad = None if values is None else torch.tensor(values)
        optimizer.step()
        return p.tolist(), optimizer.report.voters

    with pytest.warns(RuntimeWarning, match="rank 3: the gradient of step 0 is not finite"):
        assert simulate(4, body) == [([-3.0, -0.5], 2)] * 4


def test_doubles_are_averaged_as_doubles() -> None:
    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = SGD([p], lr=1.0, momentum=0.0, comm=comm)
        p.grad = torch.tensor([1 + 1e-12 * comm.rank], dtype=torch.float64)
        optimizer.step()
        return p.item()

    assert simulate(2, body) == [-(1 + 0.5e-12)] * 2


def test_it_sends_two_float_vectors() -> None:
    def body(comm: Comm) -> int:
        p = nn.Parameter(torch.zeros(100_000))
        optimizer = SGD([p], comm=comm)
        before = comm.traffic.sent
        optimizer.step()
        return comm.traffic.sent - before

    size = 4
    share = int(np.ceil(100_001 / size))
    assert simulate(size, body) == [2 * 4 * share * (size - 1)] * size


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ParameterError, match="nesterov needs momentum"):
        simulate(1, lambda comm: SGD([nn.Parameter(torch.zeros(1))], momentum=0.0, nesterov=True, comm=comm))
