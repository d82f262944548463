"""Averages along edges of one direction: push-sum, and the one-peer exponential graph, which needs no weights."""

import torch
from torch import Tensor

from ..comm import Comm
from ..timing import Stopwatch
from ..topology import Digraph, OnePeerExponential
from ..topology.weights import push_sum


class OnePeerPush:
    """Rounds of x ← (x + received)/2 in which each rank sends to one other; log2(n) of them give the exact mean.

    A rank whose message got lost keeps its own vector. Source: Assran et al. 2019; Vogels et al. 2021 as a baseline.

    Args:
        comm: the ranks; all make the same calls.
        graph: to whom one sends in which round.
        rounds: S, of each call.
        watch: receives the seconds of the phase "communicate".

    Attributes:
        weight: 1, the share of mass that a rank holds.
        count: how many vectors came in the last call, plus one's own.
    """

    weight = 1.0

    def __init__(self, comm: Comm, graph: OnePeerExponential, rounds: int = 1, watch: Stopwatch | None = None) -> None:
        self.comm, self.graph, self.rounds, self.watch = comm, graph, rounds, watch or Stopwatch()
        self.count = 1

    def __call__(self, vector: Tensor, call: int) -> None:
        """Do the rounds of the call-th call on the vector, in place."""
        self.count = 1
        for number in range(self.rounds * call, self.rounds * (call + 1)) if self.comm.size > 1 else ():
            dest, source = self.graph.dest(self.comm.rank, number), self.graph.source(self.comm.rank, number)
            with self.watch("communicate"):
                inbox = self.comm.post({dest: vector}, sources=[source]).wait()
            if source in inbox:
                vector.add_(inbox[source]).div_(2)
                self.count += 1

    def state(self) -> dict[str, Tensor]:
        """Return nothing: the round follows from the number of calls."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up nothing."""


class PushSum:
    """z ← Σ_j a_ij z_j and w ← Σ_j a_ij w_j, from x = z/w: the mean over any strongly connected digraph in the long run.

    Each rank sends equal shares of its mass to its successors and itself, so that columns of A add up to 1; rows don't,
    for which x = z/w makes up. Lost messages take mass and weight along, so that equal vectors stay as they are.
    Source: Kempe et al. 2003; Assran et al. 2019.

    Args:
        comm: the ranks; all make the same calls.
        digraph: who sends to whom.
        rounds: of each call.
        watch: receives the seconds of the phase "communicate".

    Attributes:
        weight: w, the share of mass that this rank holds; 1 at first.
        count: how many vectors came in the last call, plus one's own.
    """

    def __init__(self, comm: Comm, digraph: Digraph, rounds: int = 1, watch: Stopwatch | None = None) -> None:
        self.comm, self.rounds, self.watch = comm, rounds, watch or Stopwatch()
        self.dests, self.sources = digraph.successors[comm.rank], digraph.predecessors[comm.rank]
        self.share = float(push_sum(digraph)[comm.rank, comm.rank])
        self.weight, self.count = 1.0, 1

    def __call__(self, vector: Tensor, call: int) -> None:
        """Do the rounds of the call-th call on the vector, in place."""
        self.count = 1
        for _ in range(self.rounds):
            message = torch.empty(len(vector) + 1, dtype=vector.dtype)
            torch.mul(vector, self.weight * self.share, out=message[:-1])
            message[-1] = self.weight * self.share
            with self.watch("communicate"):
                inbox = self.comm.post(dict.fromkeys(self.dests, message), sources=self.sources).wait()
            for source in sorted(inbox):
                message += inbox[source]
            self.weight = float(message[-1])
            torch.div(message[:-1], self.weight, out=vector)
            self.count += len(inbox)

    def state(self) -> dict[str, Tensor]:
        """Return the weight, by name."""
        return {"weight": torch.tensor([self.weight], dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self.weight = float(state["weight"])
