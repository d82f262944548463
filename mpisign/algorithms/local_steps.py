"""What a worker makes of its own gradient before it talks to anybody: the update u of one parameter.

Each rule takes a parameter's group, its state (which it fills at the first gradient) and the gradient g with weight decay
in it, and returns u, which is added to the parameter. Products and sums are rounded one by one: no multiply-add may fuse.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LocalStep = Callable[[dict[str, Any], dict[str, Tensor], Tensor], Tensor]


def sgd(group: dict[str, Any], state: dict[str, Tensor], gradient: Tensor) -> Tensor:
    """b ← βb + g, u = −γ(g + βb); without `nesterov` u = −γb. As torch.optim.SGD without dampening."""
    lr, beta = float(group["lr"]), float(group["momentum"])
    if not beta:
        return gradient * -lr
    buffer = _kept(state, "momentum_buffer", gradient).mul_(beta).add_(gradient)
    return (gradient + buffer * beta if group["nesterov"] else buffer) * -lr


def damped(group: dict[str, Any], state: dict[str, Tensor], gradient: Tensor) -> Tensor:
    """b ← βb + (1 − β)g, u = −γb: the momentum of the paper's simulators."""
    lr, beta = float(group["lr"]), float(group["momentum"])
    if not beta:
        return gradient * -lr
    return _kept(state, "momentum_buffer", gradient).mul_(beta).add_(gradient * (1 - beta)) * -lr


def adam(group: dict[str, Any], state: dict[str, Tensor], gradient: Tensor) -> Tensor:
    """m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², u = −γ m̂/(√v̂ + ε), with hats for bias correction. As torch.optim.Adam."""
    lr, eps, (first, second) = float(group["lr"]), float(group["eps"]), group["betas"]
    mean = _kept(state, "exp_avg", gradient).mul_(first).add_(gradient * (1 - first))
    square = _kept(state, "exp_avg_sq", gradient).mul_(second).add_(gradient * gradient * (1 - second))
    state["step"] = state.get("step", torch.zeros(())) + 1  # of this parameter: one without a gradient doesn't age
    age = int(state["step"])
    update: Tensor = mean / (1 - first**age) / ((square / (1 - second**age)).sqrt() + eps) * -lr
    return update


LOCAL_STEPS: dict[str, LocalStep] = {"sgd": sgd, "damped": damped, "adam": adam}
"""By the names that `local` takes."""


def _kept(state: dict[str, Tensor], name: str, like: Tensor) -> Tensor:
    if name not in state:
        state[name] = torch.zeros_like(like, memory_format=torch.contiguous_format)
    return state[name]
