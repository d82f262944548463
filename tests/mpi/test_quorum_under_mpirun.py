"""Rounds that go on without a rank that sleeps, over real MPI."""

import time
from typing import Any

import pytest
import torch

from mpisign.comm import deadline
from mpisign.errors import DisagreementError, LeftBehind, ParameterError

pytestmark = pytest.mark.mpi

FLOOR = 1.0  # seconds; machines that run tests keep processes waiting for long


def opened(**settings: Any) -> Any:
    from mpisign.comm.quorum import QuorumComm

    comm = QuorumComm(timeout=2 * FLOOR, **settings)
    comm.open()
    return comm


@pytest.mark.parametrize("patient", [True, False])
def test_where_nobody_is_late_verbs_do_what_they_always_do(patient: bool) -> None:
    from mpisign import MPIComm

    quorum, plain = opened(quorum=1.0, patient=patient), MPIComm(patient=patient)
    for length in (0, 1, 1001):
        own = torch.arange(length, dtype=torch.float32).sin() * (quorum.rank + 1) / 3
        answers = []
        for comm in (quorum, plain):
            before = comm.traffic.sent
            gathered = comm.gather(own)
            collected = [block.clone() for blocks in comm.collect(own, buffers=1) for block in blocks]
            spread = comm.bcast(own.clone())
            sent = comm.traffic.sent - before
            parts = [comm.allgather(own), *(comm.allreduce(own.clone(), op) for op in ("sum", "min", "max"))]
            answers.append(
                (gathered, sorted(map(str, collected)), spread, parts, sent, comm.agree(7), comm.agree(comm.rank))
            )
        assert repr(answers[0]) == repr(answers[1])
    assert quorum.heard == tuple(range(quorum.size))
    assert quorum.lateness() == {"deadlines": 0, "seconds": 0.0, "missed": {}, "returns": {}}


def test_an_error_of_one_rank_is_raised_on_all_and_other_verbs_are_refused() -> None:
    comm = opened()
    with pytest.raises(DisagreementError, match="ä" * 100):
        comm.raise_together(DisagreementError("ä" * 3000) if comm.rank == comm.size - 1 else None)
    comm.raise_together(None)
    block = torch.zeros(2)
    for verb in (
        lambda: comm.alltoall(torch.zeros(comm.size, 2)),
        lambda: comm.send(block, 0),
        lambda: comm.receive(block, 0),
        lambda: comm.post({0: block}),
        lambda: comm.split(0),
        lambda: comm.shared(1),
        lambda: comm.aside(lambda: None),
        lambda: comm.node.rank,
    ):
        with pytest.raises(ParameterError, match="--quorum"):
            verb()
    if comm.size > 1:
        with pytest.raises(ParameterError, match="at rank 1"):
            comm.bcast(block, 1)


@pytest.mark.parametrize("late", ["drop", "count"])
def test_the_others_go_on_without_a_rank_that_sleeps_and_take_it_in_again(late: str, monkeypatch) -> None:
    monkeypatch.setattr(deadline, "FLOOR", FLOOR)
    comm = opened(quorum=0.5, late=late)
    last, step, over = comm.size - 1, 0, False
    if comm.size < 3:
        pytest.skip("of two ranks, one is half")
    behind: list[int] = []
    votes: list[list[int]] = []
    news: list[str] = []
    while not over:
        comm.readmit(lambda now=step: torch.tensor([now], dtype=torch.uint8))
        news += [f"{one['event']} {one['rank']}" for one in comm.news()]
        if comm.rank == last and step == 3 and not behind:
            time.sleep(2 * FLOOR)
        try:
            arrived = comm.collect(torch.tensor([100 * step + comm.rank]))
            ballots = sorted(int(ballot) for blocks in arrived for ballot in blocks)
            verdict = comm.bcast(torch.tensor([sum(ballots), len(ballots)]))
            present = int(comm.allreduce(torch.tensor([1])))
            assert comm.agree(step)
            assert present == len(comm.heard)
            over = bool(comm.bcast(torch.tensor([int("returned" in " ".join(news) and present == comm.size)])))
        except LeftBehind as error:
            step = int(error.state[0])
            behind.append(step)
            continue
        assert len(ballots) == (0 if comm.rank else int(verdict[1]))
        votes.append(ballots)
        step += 1
        time.sleep(0.02)
    late_one = 300 + last
    if comm.rank == 0:
        assert news == [f"late {last}", f"returned {last}"]
        assert all(
            vote[:-1] == [100 * at + rank for rank in range(last)]
            for at, vote in enumerate(votes)
            if late_one not in vote and len(vote) > last
        )
        assert sum(late_one in vote for vote in votes) == (late == "count")
        assert max(map(len, votes)) == comm.size
        assert {len(vote) for vote in votes[:3]} == {comm.size}
    else:
        assert len(behind) == (comm.rank == last)
    figures = comm.lateness()
    missed = figures["missed"][str(last)]
    assert (figures["deadlines"], figures["returns"]) == (1, {str(last): 1})
    assert FLOOR <= figures["seconds"] < 2 * FLOOR
    assert comm.away == ()
    if comm.rank == 0:
        assert missed == sum(100 * at + last not in vote for at, vote in enumerate(votes))
