"""RelaySGD/Grad: updates travel along a tree instead of models."""

from typing import Any, ClassVar

from torch import Tensor

from ..collectives.relay_mean import RelayMean
from ..collectives.relay_sum import Delay
from ..collectives.striped import Striped
from .base import Params
from .decentralised import Local
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
        topology: as in `RelaySGD`, and so are delay, local, nesterov, betas and eps.
        delay: see topology.
        local: see topology.
        nesterov: see topology.
        betas: see topology.
        eps: see topology.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        TopologyError, ParameterError, DisagreementError: see `RelaySGD`.
    """

    default_lr: ClassVar[float] = 0.1

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        topology: Network = "double_binary_trees",
        delay: Delay = "synchronous",
        local: Local = "sgd",
        nesterov: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        comm: Any = None,
    ) -> None:
        super().__init__(
            params, lr, momentum, weight_decay, topology=topology, delay=delay, local=local, nesterov=nesterov,
            betas=betas, eps=eps, comm=comm,
        )  # fmt: skip

    def connect(self) -> None:
        """Build the relay."""
        relay = Striped(self.comm, self.trees, len(self.x), self.x.dtype, self.delay, self.watch)
        self.mean = RelayMean(relay, "nothing", self.x)

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x ← x + mean of the delayed u."""
        self.mean(u)
        x += u
        self.count = self.mean.count
