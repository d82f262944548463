"""Synchronous Adam."""

import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam

from ..aggregators import Aggregator
from ..codecs import Codec
from ..errors import ParameterError
from .aggregating import AggregatingOptimizer
from .base import Params


class Adam(AggregatingOptimizer):
    """Data-parallel Adam (Kingma, Ba 2015): an aggregate of the workers' gradients, then torch's own Adam step on every rank.

        m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  x ← x − γ·m̂/(√v̂ + ε)      with the bias of m and v corrected

    g is the aggregate, over the workers that have a gradient: both moments come after it, and are the same on every rank. A
    parameter without an aggregate keeps its moments and its count of steps. float16 and bfloat16 parameters are trained
    through a float32 copy, since v of a small gradient is 0 in half precision.

    Args:
        params: parameters or groups.
        lr: γ >= 0.
        betas: β₁ and β₂, each in [0, 1).
        eps: ε > 0.
        weight_decay: λ >= 0, coupled: λx is added to the aggregate.
        codec, two_way, aggregator, seed: as in `SGD`.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError, QuorumError: see `AggregatingOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-3

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        codec: str | Callable[[int], Codec] = "float32",
        two_way: bool = False,
        aggregator: str | Aggregator = "mean",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, codec, two_way, aggregator, seed, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        betas, eps = group["betas"], group["eps"]
        if len(betas) != 2 or not all(isinstance(beta, numbers.Real) and 0 <= float(beta) < 1 for beta in betas):
            raise ParameterError(f"betas must be two numbers of at least 0 and below 1, got {betas!r}")
        if not isinstance(eps, numbers.Real) or not 0 < float(eps) < 1:
            raise ParameterError(f"eps must be a number above 0 and below 1, got {eps!r}")
        group["betas"], group["eps"] = (float(betas[0]), float(betas[1])), float(eps)

    def descend(self, means: list[Tensor | None]) -> None:
        """Take torch's step, group by group."""
        left = iter(means)
        for group in self.param_groups:
            self._descend(
                group, [(p, mean) for p, mean in zip(group["params"], left, strict=False) if mean is not None]
            )

    def _descend(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        targets = [self._target(p) for p, _ in pairs]
        states = [self.state[p] for p, _ in pairs]
        beta1, beta2 = group["betas"]
        # foreach=False: one formula, so that bits don't depend on which implementation torch would choose
        adam(
            targets,
            [mean.to(target.dtype) for target, (_, mean) in zip(targets, pairs, strict=True)],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            fused=False,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=float(group["lr"]),
            weight_decay=float(group["weight_decay"]),
            eps=group["eps"],
            maximize=False,
        )
        for (p, _), target in zip(pairs, targets, strict=True):
            if target is not p:
                p.copy_(target)

    def _target(self, p: Tensor) -> Tensor:
        """Return what is stepped, p or its float32 copy, after a look that its state is there."""
        state, half = self.state[p], p.dtype in (torch.float16, torch.bfloat16)
        if "step" not in state:
            like = p.float() if half else p
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(like.detach()) for _ in range(2))
        if not half:
            return p
        if "master" not in state or not torch.equal(state["master"].to(p.dtype), p):
            state["master"] = p.detach().float()  # the first time, or somebody has changed the parameter since
        master: Tensor = state["master"]
        return master
