"""A vote among whose voters are some that see the others' ballots first."""

from typing import Any

import numpy as np
import pytest
import torch

from mpisign import kernels, reference, registry, simulate
from mpisign.attacks import Honest
from mpisign.collectives import ServerVote, Vote
from mpisign.collectives.tampered import Tampering
from mpisign.comm import Comm
from mpisign.overhearing import BallotAttack, Omniscient

NUMELS = (0, 1, 63, 64, 65, 1001)
LAYOUT = kernels.Layout(NUMELS)
EXACT = [name for name in registry.BUILT_IN["vote"] if getattr(registry.load("vote", name), "exact", True)]
HONEST, LIARS = (0, 2, 3, 5), (1, 4, 6)


class Against(BallotAttack):
    """Votes against the sum of what it hears, + on 0; keeps it, to be looked at."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.heard: list[np.ndarray] = []

    def votes(self, honest, step):
        self.heard.append(honest.copy())
        return np.where(honest.sum(axis=0) > 0, -1, 1).astype(np.int8)


def signs(rank: int, zeros: bool) -> list[np.ndarray]:
    """int8[numel] of each parameter, in −1, 1, or with zeros too."""
    random = np.random.default_rng(rank)
    return [
        random.integers(-1 if zeros else 0, 2, n).astype(np.int8) * (1 if zeros else 2) - (not zeros) for n in NUMELS
    ]


def present(rank: int) -> list[bool]:
    """Nobody votes on parameter 3, liars alone on parameter 2."""
    return [bool((rank + p) % 4) and p != 3 and (p != 2 or rank in LIARS) for p in range(len(NUMELS))]


def ballot(rank: int, ballots: int) -> torch.Tensor:
    """A rank's message; with two ballots, a 0 is once against and once for."""
    rows = []
    for number in range(ballots):
        words = [
            reference.pack((s < 0) | ((s == 0) & (ballots - number == 2)) if here else np.zeros(len(s), np.bool_))
            for s, here in zip(signs(rank, ballots == 2), present(rank), strict=True)
        ]
        header = np.zeros(LAYOUT.header, np.uint64)
        LAYOUT.write_presence(np.array(present(rank)), header)
        rows.append(np.concatenate([header, *words]))
    return torch.from_numpy(np.concatenate(rows))


@pytest.mark.parametrize("ballots", [1, 2])
@pytest.mark.parametrize("inner", EXACT)
def test_liars_hear_each_honest_voter_and_their_votes_are_counted(inner: str, ballots: int) -> None:
    def body(comm: Comm):
        attack = (Against if comm.rank in LIARS else Honest)(comm.rank, LIARS, comm.size)
        make = Tampering(registry.load("vote", inner), attack)
        vote, plain = (one(comm, LAYOUT, "plus", 3, ballots=ballots) for one in (make, registry.load("vote", inner)))
        own = ballot(comm.rank, ballots)
        verdict = vote(own, 5).message.clone()
        sent = comm.traffic.sent
        assert torch.equal(plain(own, 5).message, verdict)  # of the ballots as they are now
        assert comm.traffic.sent == 2 * sent  # nobody's bytes are counted for what was overheard
        assert (comm.rank in LIARS) or torch.equal(own, ballot(comm.rank, ballots))
        return own, verdict, getattr(attack, "heard", None)

    results = simulate(7, body)
    assert all(torch.equal(verdict, results[0][1]) for _, verdict, _ in results)
    voted = [p for p in range(len(NUMELS)) if any(present(rank)[p] for rank in HONEST)]
    expected = {p: np.array([signs(rank, ballots == 2)[p] for rank in HONEST if present(rank)[p]]) for p in voted}
    for liar in LIARS:
        own, _, heard = results[liar]
        for p, given in zip(voted, heard, strict=True):
            assert np.array_equal(given, expected[p]), p
        for row in own.numpy().reshape(ballots, -1):
            header, words = row[: LAYOUT.header], row[LAYOUT.header :]
            assert np.flatnonzero(LAYOUT.read_presence(header)).tolist() == voted == [0, 1, 4, 5]
            for p in voted:
                start = LAYOUT.starts[p]
                lie = reference.pack(expected[p].sum(axis=0) > 0)
                assert words[start : start + len(lie)].tolist() == lie.tolist(), p
            assert not words[LAYOUT.starts[2] : LAYOUT.starts[4]].any()  # nobody honest voted there


def test_who_is_excluded_is_not_listened_to_and_scores_pass_through() -> None:
    def body(comm: Comm):
        attack = (Against if comm.rank in LIARS else Honest)(comm.rank, LIARS, comm.size)
        vote = Tampering(ServerVote, attack)(comm, LAYOUT, scored=True)
        vote.excluded[[0, 6]] = True
        vote(ballot(comm.rank, 1), 0)
        return vote.scores.tolist(), [len(given) for given in getattr(attack, "heard", [])]

    results = simulate(7, body)
    assert all(scores == results[0][0] for scores, _ in results)
    assert [voted for _, voted in results[0][0]] == [
        sum(n for p, n in enumerate(NUMELS) if (p in (0, 1, 4, 5) if rank in LIARS else present(rank)[p]))
        for rank in range(7)
    ]
    assert results[1][1] == [sum(present(rank)[p] for rank in (2, 3, 5)) for p in (0, 1, 4, 5)]


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_colluders_cancel_an_honest_vote_to_the_last_bit(size: int) -> None:
    liars = tuple(range(-(-size // 2) if size > 2 else 1, size))
    layout = kernels.Layout([1001])

    def body(comm: Comm):
        kind = Omniscient if comm.rank in liars else Honest
        vote: Vote = Tampering(ServerVote, kind(comm.rank, liars, comm.size))(comm, layout, "abstain")
        own = torch.zeros(layout.message, dtype=torch.uint64)
        gradient = torch.randn(1001, generator=torch.Generator().manual_seed(comm.rank))
        one = np.ones(1, np.float32)
        kernels.sign_ballot(layout, [gradient], None, one, one, "plus", 0, own)
        return kernels.unpack(vote(own, 0), 0).numpy(), gradient.numpy() < 0

    results = simulate(size, body)
    total = sum(np.where(negative, -1, 1) for _, negative in results[: liars[0]])
    outvoted, colluders = abs(total) > len(liars), len(liars)
    assert outvoted.any() or colluders >= liars[0]
    verdict = results[0][0]
    assert np.array_equal(verdict[outvoted], np.sign(total)[outvoted])
    if size % 2 == 0:
        assert not verdict[~outvoted].any()  # tied
    else:
        turned = ~outvoted & (total != 0)
        assert np.array_equal(verdict[turned], -np.sign(total)[turned])
