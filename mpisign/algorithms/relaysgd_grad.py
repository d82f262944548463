"""RelaySGD/Grad: updates travel along a tree instead of models."""

from typing import Any, ClassVar

from torch import Tensor

from ..collectives.relay_mean import RelayMean
from ..collectives.relay_sum import Delay
from ..collectives.striped import Striped
from .base import Params
from .networks import Network
from .relaysgd import RelaySGD


class RelaySGDGrad(RelaySGD):
    """RelaySGD/Grad (Vogels et al. 2021): x ← x + mean of all workers' u, each as old as its way is long.

    An update is relayed with the learning rate that it was made with, and those that have not come yet count as 0. Models
    are never averaged: they differ for ever, by an amount that grows with heterogeneity and learning rate, and converge
    to the optimum only where all workers share it. Learning rates are those of an all-reduce.

    Args:
        params: parameters or groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        topology: as in `RelaySGD`, and so is delay.
        delay: see topology.
        local: further arguments of `Decentralised`: local, nesterov, betas, eps, comm.

    Raises:
        TopologyError, ParameterError, DisagreementError: see `RelaySGD`.
    """

    default_lr: ClassVar[float] = 0.1
    relays_models: ClassVar[bool] = False
    takes_no: ClassVar[tuple[str, ...]] = ("fill", "correction", "codec")

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        topology: Network = "double_binary_trees",
        delay: Delay = "synchronous",
        **local: Any,
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay, topology=topology, delay=delay, **local)

    def connect(self) -> None:
        """Build the relay."""
        relay = Striped(self.comm, self.trees, len(self.x), self.x.dtype, self.delay, self.watch)
        self.mean = RelayMean(relay, "nothing", self.x)

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x ← x + mean of the delayed u."""
        self.mean(u)
        x += u
        self.count = self.mean.count
