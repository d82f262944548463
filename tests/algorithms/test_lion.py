import numpy as np
import pytest
import torch
from torch import nn

from mpisign import Lion, Signum, reference, seeding, simulate
from mpisign.comm import Comm
from mpisign.errors import ParameterError
from mpisign.kernels import stream

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def train(comm: Comm, kind: type, draws: np.ndarray, **settings: float) -> bytes:
    p = nn.Parameter(torch.zeros(draws.shape[-1]))
    optimizer = kind([p], comm=comm, **settings)
    for step in range(len(draws)):
        p.grad = torch.from_numpy(draws[step, comm.rank].copy())
        optimizer.step()
    return p.detach().numpy().tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_twenty_steps_equal_the_reference_bit_for_bit(size: int) -> None:
    draws = np.random.default_rng(size).standard_normal((20, size, 200)).astype(np.float32)
    x, v = np.zeros(200, np.float32), np.zeros((size, 200), np.float32)
    for step in range(20):
        signed = reference.momentum(v, draws[step], 0.9, 1 - 0.9)
        v = reference.momentum(v, draws[step], 0.99, 1 - 0.99)
        negative, _ = reference.majority(signed < 0, "coin", stream(seeding.key(0, seeding.SHARED, "ties"), step))
        x = reference.descend(x, negative, 0.01, 1 - 0.01 * 0.1)
    assert simulate(size, train, Lion, draws) != [x.tobytes()] * size  # other lr and decay
    settings = {"lr": 0.01, "weight_decay": 0.1}
    assert simulate(size, lambda comm: train(comm, Lion, draws, **settings)) == [x.tobytes()] * size


def test_with_equal_shares_lion_is_signum() -> None:
    draws = np.random.default_rng(0).standard_normal((10, 3, 65)).astype(np.float32)
    lion = simulate(3, lambda comm: train(comm, Lion, draws, lr=0.1, momentum=0.9, memory=0.9))
    assert lion == simulate(3, lambda comm: train(comm, Signum, draws, lr=0.1, momentum=0.9))


def test_a_memory_that_is_no_share_is_refused() -> None:
    with pytest.raises(ParameterError, match="memory must be at least 0 and below 1, got 1"):
        simulate(1, lambda comm: Lion([nn.Parameter(torch.zeros(1))], memory=1, comm=comm))
