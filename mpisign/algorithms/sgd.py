"""Synchronous SGD, the dense baseline."""

from typing import Any, ClassVar

import torch

from ..collectives import Mean
from ..errors import ParameterError
from .base import DistributedOptimizer, Params, Report, dense_gradient


class SGD(DistributedOptimizer, torch.optim.SGD):
    """Data-parallel SGD: the mean of the workers' gradients, then torch's own SGD step on every rank.

    The mean is over the workers that have a gradient, in rank order, so that it has the same bits under every MPI. A
    step leaves `p.grad` as it is. torch's conventions: undamped momentum, weight decay added to the gradient.

    Args:
        params: parameters or groups.
        lr: step size >= 0.
        momentum: in [0, 1).
        weight_decay: >= 0, coupled.
        nesterov: Nesterov momentum.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
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
        DistributedOptimizer.__init__(self, params, defaults | switches, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if group["nesterov"] and not group["momentum"]:
            raise ParameterError("nesterov needs momentum > 0, got 0")

    def prepare(self) -> None:
        """Lay out the flat vector of gradients."""
        wide = any(p.dtype == torch.float64 for p in self.parameters)
        numels = [p.numel() for p in self.parameters]
        self.mean = Mean(self.comm, numels, torch.float64 if wide else torch.float32, self.watch)

    @property
    def bytes_up(self) -> int:
        """Bytes of the vector that is summed."""
        return self.mean.nbytes

    def update(self) -> Report:
        """Average, then step."""
        means, finite = self.mean([dense_gradient(p, index) for index, p in enumerate(self.parameters)])
        with self.watch("apply"):
            own = [p.grad for p in self.parameters]
            for p, mean in zip(self.parameters, means, strict=True):
                p.grad = None if mean is None else mean.view(p.shape).to(p.dtype)
            torch.optim.SGD.step(self)
            # back again: the means lie in a buffer, into which the next backward would accumulate
            for p, gradient in zip(self.parameters, own, strict=True):
                p.grad = gradient
        return Report(self.mean.voters, finite=finite)

    step = DistributedOptimizer.step
