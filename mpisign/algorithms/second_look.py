"""A step that is taken back where the loss has grown."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ..comm import Comm


def step_unless_worse(
    step: Callable[[], Any],
    closure: Callable[[], Any],
    tensors: Sequence[Sequence[Tensor]],
    comm: Comm,
    no_sync: Callable[[], AbstractContextManager[None]],
) -> Any:
    """Take a step only where the mean over workers of the loss does not grow (Safaryan, Richtárik 2021, option 2).

    All ranks call it together; it blocks.

    Args:
        step: from the gradients that are there.
        closure: reevaluates the model, and returns the loss; called before the step and after it.
        tensors: what the step changes: for each parameter the tensor that is exact, and those that are rounded from it.
        comm: the workers.
        no_sync: the context in which backward sends nothing.

    Returns:
        The loss before the step.
    """
    before = [exact.detach().clone() for exact, *_ in tensors]
    with torch.enable_grad():
        loss = closure()
    step()
    with torch.enable_grad(), no_sync():
        trial = closure()
    old, new = (_mean(value, comm) for value in (loss, trial))
    if not new <= old:
        with torch.no_grad():
            for changed, x in zip(tensors, before, strict=True):
                for tensor in changed:
                    tensor.copy_(x)
    return loss


def _mean(loss: Any, comm: Comm) -> float:
    losses = comm.allreduce(torch.tensor([float(torch.as_tensor(loss).detach())], dtype=torch.float64))
    return float(losses) / comm.size
