"""DP-SGD: a local step, then gossip."""

from typing import Any, ClassVar

from torch import Tensor

from ..collectives.relay_sum import DELAYS, Delay
from ..errors import ParameterError
from .base import Params
from .gossiping import Gossiping
from .networks import Network


class DPSGD(Gossiping):
    """x_i ← Σ_j w_ij (x_j + u_j): decentralised parallel SGD (Lian et al. 2017).

    Overlapped, models travel while the gradient is computed: x_i ← Σ_j w_ij x_j + u_i. Under heterogeneous data it stops
    at a distance from the optimum that grows with heterogeneity, step size and the graph's slowness.

    Args:
        params: parameters or groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        topology: an undirected graph, or its name.
        weights: W, as in `Gossiping`.
        delay: "synchronous" or "overlapped".
        local: further arguments of `Decentralised`: local, nesterov, betas, eps, comm.

    Raises:
        TopologyError, ParameterError, DisagreementError: see `Gossiping`.
    """

    default_lr: ClassVar[float] = 0.1

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        topology: Network = "ring",
        weights: Any = None,
        delay: Delay = "synchronous",
        **local: Any,
    ) -> None:
        self.delay = delay
        super().__init__(params, lr, momentum, weight_decay, topology=topology, weights=weights, **local)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        if self.delay not in DELAYS:
            raise ParameterError(f"delay is one of {', '.join(DELAYS)}; got {self.delay!r}")

    def settings(self) -> tuple[Any, ...]:
        """Local step, W and delay."""
        return (*super().settings(), self.delay)

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x ← W(x + u), or overlapped Wx + u."""
        if self.delay == "synchronous":
            x += u
            self.gossip(x)
        else:
            if not self.gossip.started:  # the first step
                self.gossip.start(x)
            self.gossip.finish(x)
            x += u
            self.gossip.start(x)
        self.count = self.gossip.count

    def carried(self) -> dict[str, Tensor]:
        """Messages under way."""
        return self.gossip.state()

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up messages."""
        self.gossip.restore(vectors)
