import pytest
import torch
from protocols import verbs

from mpisign import simulate
from mpisign.comm import Comm
from mpisign.comm.lossy import LossyComm


def losses(comm: Comm, probability: float, seed: int, rounds: int = 200) -> list[tuple[int, ...]]:
    lossy = LossyComm(comm, probability, seed)
    neighbors = {(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size}
    received = [lossy.exchange(dict.fromkeys(neighbors, torch.ones(1))) for _ in range(rounds)]
    assert lossy.lost == sum(len(neighbors) - len(inbox) for inbox in received)
    return [tuple(sorted(inbox)) for inbox in received]


def test_a_lossless_network_passes_all_verbs_on() -> None:
    assert simulate(4, lambda comm: verbs(LossyComm(comm, 0.0))) == simulate(4, verbs)


def test_messages_are_lost_as_often_as_asked_and_the_same_ones_again() -> None:
    first, again, other = (simulate(5, losses, 0.2, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len({tuple(each) for each in first}) == 5  # a stream for each rank
    share = 1 - sum(len(inbox) for each in first for inbox in each) / (5 * 200 * 2)
    assert share == pytest.approx(0.2, abs=0.045)  # 5 standard deviations


def test_nothing_or_everything_can_be_lost() -> None:
    assert {inbox for each in simulate(3, losses, 0.0, 0, 5) for inbox in each} == {(0, 1), (0, 2), (1, 2)}
    assert {inbox for each in simulate(3, losses, 1.0, 0, 5) for inbox in each} == {()}


def test_a_probability_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 1.5"):
        simulate(1, lambda comm: LossyComm(comm, 1.5))
