"""What gossip methods share: a graph, and the weights with which a worker averages its neighbours."""

import zlib
from typing import Any, ClassVar

from ..collectives.gossip import Gossip
from ..topology.weights import Matrix
from .base import Params
from .decentralised import Decentralised
from .networks import Network, weights_of


class Gossiping(Decentralised):
    """A method whose workers average with their neighbours in a graph, by a matrix W; a subclass writes `advance`.

    Args:
        params: parameters or groups; lr, momentum, weight_decay, nesterov, betas and eps may differ between groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        topology: an undirected graph, or its name (`mpisign.topology.parse`).
        weights: W: Metropolis-Hastings by default; a number for all edges; or float64[n, n] whose rows and columns add
            up to 1.
        local: further arguments of `Decentralised`: local, nesterov, betas, eps, comm.

    Raises:
        TopologyError: what is no graph of all ranks, or weights that don't fit it.
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
        topology: Network = "ring",
        weights: Any = None,
        **local: Any,
    ) -> None:
        self._topology, self._weights = topology, weights
        super().__init__(params, lr, momentum, weight_decay, **local)

    def matrix(self) -> Matrix:
        """Return W."""
        return weights_of(self._topology, self._weights, self.comm.size)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        self.w = self.matrix()

    def settings(self) -> tuple[Any, ...]:
        """Local step and W."""
        return (*super().settings(), zlib.crc32(self.w.tobytes()))

    def connect(self) -> None:
        """Build the gossip."""
        self.gossip = Gossip(self.comm, self.w, watch=self.watch)

    @property
    def bytes_up(self) -> int:
        """Bytes of a message to a neighbour."""
        return self.x.nbytes
