"""RelaySum/mix: between RelaySGD, which relays models, and RelaySGD/Grad, which relays updates."""

from typing import Any, ClassVar

from torch import Tensor

from ..collectives.relay_mean import Fill, RelayMean
from ..collectives.relay_sum import Delay
from ..collectives.striped import Striped
from ..errors import ParameterError
from .base import Params
from .networks import Network
from .relaysgd import RelaySGD


class RelayMix(RelaySGD):
    """x ← (1 − s)x + mean of all workers' s·x + u, each as old as its way is long (Vogels et al. 2021, their code).

    s = 1 is RelaySGD and s = 0 RelaySGD/Grad. What stands for models that have not come yet is scaled by s, too: the
    paper's training code forgets that, so that models grow in the first steps; its simulators don't.

    Args:
        params: parameters or groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        strength: s in [0, 1], of the pull towards the others' models.
        topology: as in `RelaySGD`, and so are delay and fill.
        delay: see topology.
        fill: see topology.
        local: further arguments of `Decentralised`: local, nesterov, betas, eps, comm.

    Raises:
        TopologyError, ParameterError, DisagreementError: see `RelaySGD`.
    """

    default_lr: ClassVar[float] = 0.1
    relays_models: ClassVar[bool] = False
    takes_no: ClassVar[tuple[str, ...]] = ("correction", "codec")

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        strength: float = 0.5,
        topology: Network = "double_binary_trees",
        delay: Delay = "synchronous",
        fill: Fill = "initial",
        **local: Any,
    ) -> None:
        self.strength = strength
        super().__init__(params, lr, momentum, weight_decay, topology=topology, delay=delay, fill=fill, **local)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        if not 0 <= self.strength <= 1:
            raise ParameterError(f"strength must be in [0, 1], got {self.strength}")

    def settings(self) -> tuple[Any, ...]:
        """The relay's, and s."""
        return (*super().settings(), self.strength)

    def connect(self) -> None:
        """Build the relay; its messages begin with this model, scaled."""
        relay = Striped(self.comm, self.trees, len(self.x), self.x.dtype, self.delay, self.watch)
        self.mean = RelayMean(relay, self.fill, self.x, self.strength)

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x ← (1 − s)x + mean of the delayed s·x + u."""
        u += x * self.strength
        self.mean(u)
        x.mul_(1 - self.strength).add_(u)
        self.count = self.mean.count
