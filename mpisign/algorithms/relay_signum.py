"""Signum without a server: ballots are relayed along a tree, and every rank finds the majority by itself, some steps late."""

from typing import Any, ClassVar

import torch

from .. import kernels
from ..collectives.relay_sum import DELAYS, Delay
from ..collectives.relay_vote import RelayVote
from ..collectives.vote import Vote
from ..comm import Comm
from ..errors import ParameterError
from .base import Params
from .buckets import Bucket
from .networks import Network, trees_of
from .signum import Signum, ZeroRule


class RelaySignum(Signum):
    """Signum whose majority vote is relayed: x_{t+1} = x_t − η(V_{t−D} + λx_t), where V_s is the majority about step s.

        worker:  v ← βv + (1−β)g,  keeps sign(v)
        relay:   to j: own ballot + what the others but j sent, all of one step       counters, 1 … ceil(log2 n) bits
        worker:  V of step t − D from own ballot and what came,  x ← x − η(V + λx)     the same bits on all ranks

    Ranks talk with their neighbours only, each verdict is exact, and models stay equal bit for bit, since all ranks wait
    until the farthest ballot has come: D is the trees' diameter with "overlapped" messages, one less with "synchronous"
    ones. So a step is made of gradients D steps old, and a weight may overshoot by D·η: let η decay, most so with a long
    delay. In the first D steps nothing changes; the last D verdicts of a run are not applied, nor are those under way when
    a group is added. Each rank's `state_dict` holds what is under way there; each loads its own.

    Args:
        params: parameters or groups; lr, momentum, weight_decay and trust may differ between groups.
        lr: η >= 0, the step of every coordinate.
        momentum: β in [0, 1).
        weight_decay: λ >= 0, decoupled.
        trust: as in `Signum`.
        topology: a tree, several that share the words, or the name of such (`mpisign.topology.parse`).
        delay: "synchronous" or "overlapped": messages travel while the next gradient is computed.
        tie: as in `Signum`.
        zero: as in `Signum`.
        seed: names the coins.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        TopologyError: what is no tree of all ranks.
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    stale: ClassVar[bool] = False
    on_gpu: ClassVar[bool] = False

    def __init__(
        self,
        params: Params,
        lr: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        trust: float | None = None,
        topology: Network = "double_binary_trees",
        delay: Delay = "synchronous",
        tie: kernels.Tie = "coin",
        zero: ZeroRule = "coin",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        self._topology, self.delay = topology, delay
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            trust=trust,
            vote=self._relayed,
            tie=tie,
            zero=zero,
            seed=seed,
            comm=comm,
        )

    def _relayed(self, comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> Vote:
        """Return the vote."""
        return RelayVote(comm, layout, *args, **settings, trees=self.trees, delay=self.delay, stale=self.stale)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError or TopologyError where settings can't be used."""
        super().check_group(group)
        self.trees = trees_of(self._topology, self.comm.size)
        if self.delay not in DELAYS:
            raise ParameterError(f"delay is one of {', '.join(DELAYS)}; got {self.delay!r}")

    def settings(self) -> tuple[Any, ...]:
        """Trees and delay: ranks that differ in them would wait for each other."""
        return (*super().settings(), self.trees, self.delay)

    @property
    def relay(self) -> RelayVote:
        """The vote."""
        (vote,) = self.votes
        assert isinstance(vote, RelayVote)  # `_relayed`
        return vote

    @property
    def late(self) -> int:
        """D, in steps."""
        return self.relay.late

    def judged(self, bucket: Bucket) -> torch.Tensor:
        """Return this worker's ballot of D steps ago."""
        return self.relay.own[-bucket.layout.message :]

    def settle(self) -> None:
        """Wait for messages under way; call it at the end of a run."""
        for relay in self.relay.relays:
            relay.settle()

    def state_dict(self) -> dict[str, Any]:
        """As every algorithm's, with this rank's ballots and messages under way in the first parameter's state."""
        state = super().state_dict()
        own = {f"own {name}": block for name, block in self.relay.state().items()}
        if self.parameters:
            first = next(index for group in state["param_groups"] for index in group["params"])
            state["state"][first] = {**state["state"].get(first, {}), **own}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; not collective, but every rank must load its own."""
        super().load_state_dict(state_dict)
        entry = self.state[self.parameters[0]] if self.parameters else {}
        own = {name.removeprefix("own "): entry.pop(name) for name in list(entry) if name.startswith("own ")}
        if own:
            self.relay.restore(own)


class StaleRelaySignum(RelaySignum):
    """A relayed vote in which each rank counts the freshest ballots that it has, those of rank j being d_ij steps old.

    Nobody waits for the farthest ballot, but verdicts differ between ranks and so do models: nothing pulls them together
    but the objective, so that they drift as far apart as contested coordinates let them. For comparison, and for networks
    that lose messages: one that is lost takes its ballots of one step with it. Arguments as in `RelaySignum`.
    """

    replicated: ClassVar[bool] = False
    stale: ClassVar[bool] = True

    def state_dict(self) -> dict[str, Any]:
        """As that of `RelaySignum`, with this rank's model."""
        state = super().state_dict()
        saved = [index for group in state["param_groups"] for index in group["params"]]
        for p, index in zip(self.parameters, saved, strict=True):
            state["state"][index] = {**state["state"].get(index, {}), "model": p.detach()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, this rank's model included; not collective, but every rank loads its own."""
        super().load_state_dict(state_dict)
        with torch.no_grad():
            for p in self.parameters:
                if "model" in self.state[p]:
                    p.copy_(self.state[p].pop("model"))
