"""A vote among whose voters are some that see the others' ballots before they cast their own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..attacks import Attack
from ..comm import Comm
from ..comm.uncounted import uncounted
from ..overhearing import BallotAttack
from .vote import Vote, VoteFactory


class TamperedVote(Vote):
    """Shows all ballots to the Byzantine workers, replaces theirs by what their attack says, and lets another vote decide.

    What they overhear is not counted as traffic. A Byzantine worker's ballot is changed in place. It votes on what an
    honest worker votes on, whatever gradients it has; workers that are excluded are not listened to.

    Args:
        inner: the vote that decides.
        attack: what this rank does; a `BallotAttack` on the Byzantine ranks.
    """

    def __init__(self, inner: Vote, attack: Attack) -> None:
        super().__init__(inner.comm, inner.layout, inner.tie, watch=inner.watch, ballots=inner.ballots)
        self.inner, self.attack = inner, attack
        self.scored, self.coins, self.verdict = inner.scored, inner.coins, inner.verdict
        self.scores, self.excluded = inner.scores, inner.excluded

    def __call__(self, ballot: Tensor, step: int) -> kernels.Verdict:
        """Return the verdict on the honest ballots and the lies."""
        with uncounted(self.comm):
            heard = self.comm.allgather(ballot)
        if isinstance(self.attack, BallotAttack):
            self._replace(ballot, heard, self.attack, step)
        return super().__call__(ballot, step)

    def _decide(self, ballot: Tensor, key: int) -> None:
        self.inner._decide(ballot, key)

    def _replace(self, ballot: Tensor, heard: Tensor, attack: BallotAttack, step: int) -> None:
        layout, header = self.layout, self.layout.header
        honest = [rank for rank in range(self.comm.size) if rank not in attack.ranks and not self.excluded[rank]]
        messages = heard.numpy().reshape(self.comm.size, self.ballots, -1)[honest]  # [h, ballots, message]
        present = np.array([layout.read_presence(message[-1, :header]) for message in messages])  # [h, P]
        said, anybody = np.zeros(layout.message, np.uint64), np.asarray(present.any(axis=0))
        layout.write_presence(anybody, said[:header])
        for p in np.flatnonzero(anybody):
            numel, start = int(layout.numels[p]), header + int(layout.starts[p])
            words = slice(start, start + (numel + 63) // 64)
            bits = np.unpackbits(
                messages[present[:, p], :, words].view(np.uint8), axis=-1, bitorder="little", count=numel
            ).astype(np.int8)
            signs = (self.ballots - 2 * bits.sum(axis=1, dtype=np.int8)) // self.ballots  # once for, once against: 0
            votes = np.zeros(64 * (words.stop - words.start), np.bool_)
            votes[:numel] = attack.votes(signs, step) < 0
            said[words] = np.packbits(votes, bitorder="little").view(np.uint64)
        ballot.view(self.ballots, -1)[:] = torch.from_numpy(said)


@dataclass(frozen=True)
class Tampering:
    """Makes `TamperedVote`s round the votes of a factory: for `Signum(vote=Tampering(ServerVote, attack))`."""

    inner: VoteFactory
    attack: Attack

    @property
    def can_score(self) -> bool:
        """Whether the inner votes can."""
        return bool(getattr(self.inner, "can_score", True))

    def __call__(self, comm: Comm, layout: kernels.Layout, *args: Any, **settings: Any) -> Vote:
        """Return the vote of one bucket."""
        return TamperedVote(self.inner(comm, layout, *args, **settings), self.attack)
