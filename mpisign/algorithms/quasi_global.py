"""Quasi-global momentum: DP-SGD whose momentum follows the averaged model instead of the worker's own gradients."""

from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from .gossiping import Gossiping
from .local_steps import LocalStep


class QuasiGlobal(Gossiping):
    """h = x − γ(g + β(βm + g)), x⁺ = Σ_j w_ij h_j, m ← βm + (1 − β)(x − x⁺)/γ: DSGDm-N QG (Lin et al. 2021).

    With local="damped" h = x − γ(βm + g)/(1 + β), as in the simulators of Vogels et al. 2021. While γ = 0, as in the
    first step of a warm-up, m stays as it is: dividing by a tiny number in place of 0 would turn the rounding of an
    average into a momentum of any size. Arguments as in `Gossiping`, but local can't be "adam".
    """

    @property
    def local_step(self) -> LocalStep:
        """The step with the momentum as it is."""
        return _damped if self.local == "damped" else _nesterov

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        if self.local == "adam":
            raise ParameterError("quasi-global momentum has a step of its own: local must be sgd or damped, got adam")

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x⁺ = Σ_j w_ij h_j, m ← βm + (1 − β)(x − x⁺)/γ."""
        before = x.clone()
        x += u
        self.gossip(x)
        for p, group, moved in zip(self.parameters, self.owners, self.parts(before.sub_(x)), strict=True):
            lr, beta = float(group["lr"]), float(group["momentum"])
            if lr and beta and p.requires_grad:
                _momentum(self.state[p], moved).mul_(beta).add_(moved * ((1 - beta) / lr))
        self.count = self.gossip.count


def _nesterov(group: dict[str, Any], state: dict[str, Tensor], gradient: Tensor) -> Tensor:
    lr, beta = float(group["lr"]), float(group["momentum"])
    ahead = (_momentum(state, gradient) * beta).add_(gradient)
    return (gradient + ahead * beta if group["nesterov"] else ahead) * -lr


def _damped(group: dict[str, Any], state: dict[str, Tensor], gradient: Tensor) -> Tensor:
    lr, beta = float(group["lr"]), float(group["momentum"])
    return (_momentum(state, gradient) * beta).add_(gradient) * (-lr / (1 + beta))


def _momentum(state: dict[str, Tensor], like: Tensor) -> Tensor:
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(like, memory_format=torch.contiguous_format)
    return state["momentum_buffer"]
