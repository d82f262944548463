"""The contract of a vote."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from .. import kernels, reference
from ..collectives import VoteFactory
from ..comm import Comm, simulate
from .checks import RANKS, require


def check_vote(make: VoteFactory, ranks: Sequence[int] = RANKS) -> None:
    """Check a vote, `make(comm, layout, tie, seed, ballots=…)`: the reference's verdict, bit for bit, for each tie rule.

    With one ballot a rank and with two, on one machine and with two ranks a machine. Of a vote that says that it is not
    exact, only that all ranks get the same verdict.
    """
    for size in ranks:
        for per_node in (size, 2):
            for ballots in (1, 2):
                _check_vote(make, size, per_node, ballots)


def _check_vote(make: VoteFactory, size: int, per_node: int, ballots: int) -> None:
    numels = (0, 1, 63, 64, 65, 1001)
    layout, random = kernels.Layout(numels), np.random.default_rng(size)
    signs = [[random.random(n) < 0.5 for n in numels] for _ in range(size * ballots)]
    present = random.random((size, len(numels))) < 0.8

    def body(comm: Comm, tie: kernels.Tie) -> list[bytes]:
        vote = make(comm, layout, tie, 3, ballots=ballots)
        verdicts = []
        for step in range(3):
            here = np.roll(present, -step, axis=0)
            own = signs[comm.rank * ballots : (comm.rank + 1) * ballots]
            verdict = vote(torch.cat([_ballot(layout, one, here[comm.rank]) for one in own]), step)
            verdicts.append(verdict.message.numpy().tobytes())
            require(verdict.voters == int(here.any(axis=1).sum()), f"{verdict.voters} voters counted")
            if vote.exact:
                _require_verdict(verdict, signs, here.repeat(ballots, axis=0), kernels.stream(vote.coins, step))
        return verdicts

    for tie in get_args(kernels.Tie):
        verdicts = simulate(size, body, tie, per_node=per_node)
        require(len(set(map(tuple, verdicts))) == 1, f"{size} ranks got different verdicts")


def _ballot(layout: kernels.Layout, signs: Any, present: Any) -> Tensor:
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    gradients = [
        torch.from_numpy(np.where(s, -1, 1).astype(np.float32)) if here else None
        for s, here in zip(signs, present, strict=True)
    ]
    one = np.ones(len(layout.numels), np.float32)
    kernels.sign_ballot(layout, gradients, None, one, one, "plus", 0, ballot)
    return ballot


def _require_verdict(verdict: kernels.Verdict, signs: Any, present: Any, key: int) -> None:
    layout = verdict.layout
    require(verdict.decided.tolist() == present.any(axis=0).tolist(), "other parameters decided than were voted on")
    for p, start in enumerate(layout.starts.tolist()):
        votes = np.array([ballot[p] for ballot, here in zip(signs, present[:, p], strict=True) if here], np.bool_)
        if not len(votes):
            continue
        negative, tied = reference.majority(votes, verdict.tie, key, start)
        stop = start + (int(layout.numels[p]) + 63) // 64
        require(
            verdict.words[start:stop].tobytes() == reference.pack(negative).tobytes(), f"wrong verdict on parameter {p}"
        )
        if verdict.tie == "abstain":
            require(
                verdict.ties[start:stop].tobytes() == reference.pack(tied).tobytes(), f"wrong ties on parameter {p}"
            )
