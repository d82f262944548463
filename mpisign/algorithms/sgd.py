"""Synchronous SGD, the dense baseline."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..aggregators import Aggregator
from ..codecs import Codec
from ..errors import ParameterError
from .aggregating import AggregatingOptimizer
from .base import DistributedOptimizer, Params

_step: Any = inspect.unwrap(torch.optim.SGD.step)
"""torch's own step, without the wrapper that imports torch._dynamo."""


class SGD(AggregatingOptimizer, torch.optim.SGD):
    """Data-parallel SGD: an aggregate of the workers' gradients, then torch's own SGD step on every rank.

    The aggregate is over the workers that have a gradient, in rank order, so that it has the same bits under every MPI. A
    step leaves `p.grad` as it is. torch's conventions: undamped momentum, weight decay added to the gradient. Both come
    after the aggregate: what travels is the gradient alone, and what a codec loses enters the momentum once.

    Args:
        params: parameters or groups.
        lr: step size >= 0.
        momentum: in [0, 1).
        weight_decay: >= 0, coupled.
        nesterov: Nesterov momentum.
        codec: how gradients travel: "float32", "float16" or "bfloat16" (both ways), "qsgd:4" or "qsgd:4:max" (s levels, l2
            or max norm), "topk:0.01" (the largest share, with error feedback, always on), or a function from a length to
            a `Codec`.
        two_way: whether the aggregate goes back through the codec too.
        aggregator: "mean", "median", "trimmed_mean:0.2", "krum:2" (Multi-Krum against 2 liars), or a function
            float32[n, d] -> float32[d].
        seed: names the codec's coins.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError, QuorumError: see `AggregatingOptimizer`.
    """

    default_lr: ClassVar[float] = 0.1

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        codec: str | Callable[[int], Codec] = "float32",
        two_way: bool = False,
        aggregator: str | Aggregator = "mean",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": 0.0,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        # foreach=False: one formula, so that bits don't depend on which implementation torch would choose
        switches = {"maximize": False, "foreach": False, "differentiable": False, "fused": False}
        AggregatingOptimizer.__init__(self, params, defaults | switches, codec, two_way, aggregator, seed, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if group["nesterov"] and not group["momentum"]:
            raise ParameterError("nesterov needs momentum > 0, got 0")

    def descend(self, means: list[Tensor | None]) -> None:
        """Take torch's step with the means in place of the gradients."""
        own = [p.grad for p in self.parameters]
        for p, mean in zip(self.parameters, means, strict=True):
            p.grad = None if mean is None else mean.to(p.dtype)
        _step(self)
        # back again: the means lie in a buffer, into which the next backward would accumulate
        for p, gradient in zip(self.parameters, own, strict=True):
            p.grad = gradient

    step = DistributedOptimizer.step
