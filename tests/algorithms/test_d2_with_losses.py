"""Why D² does not survive lost messages: what they do to its corrections stays for ever."""

from typing import Any

import pytest
import torch

from mpisign import D2, simulate
from mpisign.comm import Comm, LossyComm

STEPS = (400, 1200)  # with a large step, then with a tenth of it


def shift(lost: float) -> list[tuple[float, float]]:
    """Return for both step sizes how far the mean model ends from the optimum, and the mean correction over the step."""

    def body(comm: Comm) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        target = torch.full((1,), float(comm.rank**2), dtype=torch.float64)
        x = torch.nn.Parameter(torch.zeros_like(target))
        optimizer: Any = D2([x], lr=0.1, momentum=0.0, weights=0.3, comm=LossyComm(comm, lost, seed=3))
        found = []
        for lr, steps in zip((0.1, 0.01), STEPS, strict=True):
            optimizer.param_groups[0]["lr"] = lr
            for _ in range(steps):
                x.grad = x.detach() - target
                optimizer.step()
            found.append((x.detach().clone(), optimizer.correction / lr, target))
        return found

    means = [torch.stack([torch.cat(one) for one in stage]).mean(0) for stage in zip(*simulate(5, body), strict=True)]
    return [(float(x - target), float(correction)) for x, correction, target in means]


def test_without_losses_corrections_cancel_and_the_mean_is_the_optimum() -> None:
    for distance, correction in shift(0.0):
        assert distance == pytest.approx(0, abs=1e-9)  # targets of up to 16, 16 digits
        assert correction == pytest.approx(0, abs=1e-9)


def test_a_loss_shifts_the_optimum_for_good_and_the_more_the_smaller_the_step() -> None:
    (large, correction), (small, last) = shift(0.02)
    assert abs(large) > 0.05
    assert large == pytest.approx(correction, rel=0.05)  # x̄ rests where mean gradient and mean correction cancel
    assert small == pytest.approx(last, rel=0.05)
    assert abs(small) > 4 * abs(large)  # ten times, but for what is lost in the second stage
