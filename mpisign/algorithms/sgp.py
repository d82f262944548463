"""Stochastic gradient push: averages along edges of one direction."""

from typing import Any, ClassVar

from torch import Tensor

from ..collectives.push_sum import OnePeerPush, PushSum
from ..errors import ParameterError, TopologyError
from ..topology import Digraph, Graph, OnePeerExponential
from .base import Params
from .decentralised import Decentralised
from .networks import Network, network_of


class StochasticGradientPush(Decentralised):
    """SGP (Assran, Loizou, Ballas, Rabbat 2019): a local step, then S rounds of push-sum.

    On the one-peer exponential graph x ← (x + received)/2, and log2(n) rounds give the exact mean. On any other digraph
    z = wx travels with its weight w, z ← z + u, and x = z/w is what gradients are taken at.

    Args:
        params: parameters or groups; lr, momentum, weight_decay, nesterov, betas and eps may differ between groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        topology: an `OnePeerExponential` (n a power of two), a `Digraph`, or the name of one; a Graph is taken both ways. By
            default the first where it exists, else the digraph `exponential`.
        rounds: S, of each step; ranks send one message each in a round of the one-peer graph.
        local: further arguments of `Decentralised`: local, nesterov, betas, eps, comm.

    Raises:
        TopologyError: what is no such graph of all ranks.
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
        topology: Network | None = None,
        rounds: int = 2,
        **local: Any,
    ) -> None:
        self._topology, self.rounds = topology, rounds
        super().__init__(params, lr, momentum, weight_decay, **local)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        if self.rounds < 1:
            raise ParameterError(f"rounds must be at least 1, got {self.rounds}")
        size = self.comm.size
        default = "exponential" if size & (size - 1) else OnePeerExponential(size)
        graph = network_of(self._topology or default, size)
        if isinstance(graph, Graph):
            graph = Digraph(graph.neighbors)
        if isinstance(graph, tuple):
            raise TopologyError("push-sum needs one graph, got several trees")
        if isinstance(graph, OnePeerExponential) and graph.order == "reference" and graph.rounds_a_step != self.rounds:
            raise ParameterError(
                f"the reference's order depends on rounds: they are {self.rounds}, the graph's rounds_a_step is "
                f"{graph.rounds_a_step}; make them equal"
            )
        self.graph = graph

    def settings(self) -> tuple[Any, ...]:
        """Local step, graph and rounds."""
        return (*super().settings(), self.graph, self.rounds)

    def connect(self) -> None:
        """Build what pushes."""
        if isinstance(self.graph, OnePeerExponential):
            self.push: OnePeerPush | PushSum = OnePeerPush(self.comm, self.graph, self.rounds, self.watch)
        else:
            self.push = PushSum(self.comm, self.graph, self.rounds, self.watch)

    @property
    def bytes_up(self) -> int:
        """Bytes of the messages to one receiver in each step."""
        return self.rounds * self.x.nbytes

    def advance(self, x: Tensor, u: Tensor) -> None:
        """z ← push(wx + u), x = z/w."""
        x += u if self.push.weight == 1 else u / self.push.weight
        self.push(x, self.steps_taken)
        self.count = self.push.count

    def carried(self) -> dict[str, Tensor]:
        """The weight."""
        return self.push.state()

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up the weight."""
        self.push.restore(vectors)
