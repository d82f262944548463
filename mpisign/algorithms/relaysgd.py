"""RelaySGD: models travel along a tree, and each counts exactly once in everybody's mean, however different the data."""

import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import codecs
from ..codecs import Codec
from ..collectives.relay_mean import FILLS, Fill, RelayMean
from ..collectives.relay_sum import DELAYS, Delay
from ..collectives.striped import Striped
from ..comm import as_comm
from ..comm.lossy import LossyComm
from ..errors import DisagreementError, ParameterError, TopologyError
from ..topology import Graph, Tree
from ..topology.delays import correction as kappa
from ..topology.repair import Lost, repaired, survivors
from .base import Params
from .decentralised import Decentralised, Local
from .networks import Network, trees_of

_GENERATIONS = 256  # of messages, by repairs: those of an old tree must not be taken for those of a new one


class RelaySGD(Decentralised):
    """RelaySGD (Vogels, He, Koloskova, Lin, Karimireddy, Stich, Jaggi 2021, Algorithm 1), RelaySum/Model.

        worker:  h = x + u                                any local step
        relay:   to j: h + what the others but j sent in the last step
        worker:  x = mean of all workers' h, each as many steps old as its message travelled

    A mean over a history of models takes one worker's update in κ = 1 + mean delay steps' time as a whole, so that
    learning rates want to be larger than those of an all-reduce, by κ at most: 5.375 for a chain of 16.

    Args:
        params: parameters or groups; lr, momentum, weight_decay, nesterov, betas and eps may differ between groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        topology: a tree, several that share the coordinates, or the name of such (`mpisign.topology.parse`).
        delay: "synchronous" (hops − 1) or "overlapped" (hops; messages travel while the next gradient is computed).
        fill: what stands for models that have not come yet, or got lost: see `RelayMean`.
        local: "sgd", "damped" (the momentum of the paper's simulators) or "adam" (with betas and eps; Relay-Adam).
        nesterov: Nesterov momentum, of "sgd".
        betas: of "adam".
        eps: of "adam".
        correction: multiply lr by κ.
        codec: how models travel: a name as of `--codec`, or a function from a length to a codec. What goes through it are
            the changes of each message against the last one along its edge, so that nothing is lost for good (`Differences`).
        seed: names the codec's coins.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        TopologyError: what is no tree of all ranks.
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 0.1
    relays_models: ClassVar[bool] = True
    """Whether messages hold models, and no updates that would be lost with them."""

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        topology: Network = "double_binary_trees",
        delay: Delay = "synchronous",
        fill: Fill = "initial",
        local: Local = "sgd",
        nesterov: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        correction: bool = False,
        codec: str | Callable[[int], Codec] = "float32",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        self._topology, self.delay, self.fill, self.correction = topology, delay, fill, correction
        self.codec, self.seed, self._repairs = codec, seed, 0
        super().__init__(
            params, lr, momentum, weight_decay, local=local, nesterov=nesterov, betas=betas, eps=eps, comm=comm
        )

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        self.trees = trees_of(self._topology, self.comm.size)
        if self.delay not in DELAYS or self.fill not in FILLS:
            raise ParameterError(
                f"delay is one of {', '.join(DELAYS)} and fill one of {', '.join(FILLS)}; got {self.delay!r}, {self.fill!r}"
            )
        self._check_codec()
        if self.correction:
            self.scale = sum(kappa(tree, self.delay) for tree in self.trees) / len(self.trees)

    def _check_codec(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ParameterError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if self.coded:
            codecs.build(self.codec, 0)
            if isinstance(self.comm, LossyComm):
                raise ParameterError(
                    f"codec={self.codec!r} sends changes, each of which must arrive, and this network loses messages: use float32"
                )

    @property
    def coded(self) -> bool:
        """Whether models go through a codec; they are then relayed as differences from the start, `origin`."""
        return self.codec != "float32"

    def settings(self) -> tuple[Any, ...]:
        """Trees, rules and codec: ranks that differ in them would wait for each other, or average otherwise."""
        codec = self.codec if isinstance(self.codec, str) else getattr(self.codec, "__qualname__", repr(self.codec))
        return (*super().settings(), self.trees, self.delay, self.fill, self.correction, codec, self.seed)

    def relay(self) -> Striped:
        """Return a new relay along the present trees."""
        codec = (lambda numel: codecs.build(self.codec, numel)) if self.coded else None
        first = self._repairs % _GENERATIONS * len(self.trees)
        return Striped(
            self.comm, self.trees, len(self.x), self.x.dtype, self.delay, self.watch, codec, self.seed, first
        )

    def connect(self) -> None:
        """Build the relay; its messages begin with this model."""
        self.origin = self.x.clone() if self.coded else torch.empty(0)
        self._begin()

    def _begin(self) -> None:
        self.mean = RelayMean(self.relay(), self.fill, self.x - self.origin if self.coded else self.x)

    def repair(self, graph: Graph, lost: Lost, comm: Any = None) -> None:
        """Go on along trees without what is lost; collective, with the same arguments on all ranks that are left.

        Each tree gets the edges that it needs, no more (`mpisign.topology.repair`); where none has lost anything all stays
        as it is. Messages hold all that is behind their edge, so all of them, and the counts, begin anew, with the models
        as they are: none is lost, what was under way is not waited for, and after the longest delay of the new trees the
        mean is again exactly that of all ranks. Until then a rank's own last mean stands where `fill` says initial. The
        model and the data of a lost worker are gone. Through a codec, the first messages are differences from the start
        of the run, and take as long as those did to arrive whole.

        Args:
            graph: who can talk to whom, as the ranks were numbered until now.
            lost: ranks and edges, all that is lost by now in this graph; found and agreed on by the caller.
            comm: where ranks are lost, the communicator of the others in their order: `old.split(…)`.

        Errors: TopologyError where the graph falls apart; ParameterError where comm doesn't fit, or what is relayed are no
            models; DisagreementError where ranks were told different things. Nothing is changed then.
        """
        ranks = self.comm if comm is None else as_comm(comm)
        lost = list(lost)

        def find() -> tuple[Tree, ...]:
            if not self.relays_models:
                raise ParameterError(f"{type(self).__name__} relays updates: those under way would be lost for good")
            left, _ = survivors(graph, lost)
            if ranks.size != len(left) or left[ranks.rank] != self.comm.rank:
                raise ParameterError(
                    f"rank {self.comm.rank} is rank {ranks.rank} of {ranks.size}, but of {self.comm.size} ranks {len(left)} "
                    f"are left: give their communicator in the same order, as comm.split does"
                )
            return tuple(repaired(tree, graph, lost) for tree in self.trees)

        trees = ranks.together(find, TopologyError)
        text = f"rank {self.comm.rank}: ranks were told of different graphs or losses, here {lost}"
        ranks.insist(zlib.crc32(repr((trees, self._repairs)).encode()), DisagreementError(text))
        if trees == self.trees and ranks.size == self.comm.size:
            return
        self.comm, self.trees, self._topology = ranks, trees, trees
        self._repairs += 1
        for group in self.param_groups:
            self.check_group(group)
        with torch.no_grad():
            self._read()
        self._begin()

    @property
    def bytes_up(self) -> int:
        """Bytes of one message of each tree."""
        return self.mean.relay.nbytes

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x = mean of the delayed h."""
        x += u
        if self.coded:
            x -= self.origin
        self.mean(x)
        if self.coded:
            x += self.origin
        self.count = self.mean.count

    def carried(self) -> dict[str, Tensor]:
        """Messages, and what stands for those that are missing."""
        return self.mean.state() | ({"origin": self.origin} if self.coded else {})

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up messages."""
        if self.coded:
            self.origin = vectors["origin"].clone()
        self.mean.restore(vectors)
