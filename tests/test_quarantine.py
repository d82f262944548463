"""Whom the quarantine excludes, how soon, and how seldom somebody honest. False alarms are counted against the stated rate."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from test_attacks import learnt

from mpisign import Signum, simulate
from mpisign.attacks import Attack, Honest, Invert
from mpisign.collectives import ServerVote
from mpisign.collectives.tampered import Tampering
from mpisign.comm import Comm
from mpisign.config import AlgorithmConfig
from mpisign.errors import ConfigError, ParameterError
from mpisign.options import parse
from mpisign.overhearing import BallotAttack
from mpisign.quarantine import Quarantine
from mpisign.tracking import table

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

Scores = Iterator[np.ndarray]


def alarms(runs: int, steps: int, scores: Callable[[int], Scores], rate: float, workers: int = 7) -> int:
    """In how many runs anybody is ever excluded; `scores(seed)` yields int64[n, 2], step by step."""
    count = 0
    for seed in range(runs):
        quarantine, given = Quarantine(workers, rate), scores(seed)
        for step in range(steps):
            quarantine.observe(next(given), step)
            if quarantine.excluded.any():
                count += 1
                break
    return count


def noise(workers: int, coordinates: int, momentum: float, signal: float = 0.0, inverting: int = 0):
    """Signum's votes on `signal` + N(0, 1), coordinate by coordinate; the last ones say the opposite."""

    def scores(seed: int) -> Scores:
        random = np.random.default_rng(seed)
        velocity = np.zeros((workers, coordinates))
        while True:
            gradient = signal + random.standard_normal((workers, coordinates))
            gradient[workers - inverting :] *= -1
            velocity = momentum * velocity + (1 - momentum) * gradient
            negative = velocity < 0
            verdict = 2 * negative.sum(axis=0) > workers
            yield np.stack([(negative != verdict).sum(axis=1), np.full(workers, coordinates)], axis=1)

    return scores


def most(runs: int, rate: float) -> float:
    """The expected number of alarms and four standard deviations of a binomial: more happens once in 30,000 tests."""
    return runs * rate + 4 * np.sqrt(runs * rate * (1 - rate))


# False alarms


def test_at_the_edge_of_the_hypothesis_alarms_are_as_rare_as_stated() -> None:
    # agreement 1/2 on average and all coordinates of a step alike, 0 or 1: the least that is honest, the most dependent
    def coins(seed: int) -> Scores:
        random = np.random.default_rng(seed)
        while True:
            yield np.stack([1000 * random.integers(0, 2, 7), np.full(7, 1000)], axis=1)

    count = alarms(200, 200, coins, 0.1)
    assert 0 < count <= most(200, 0.1)  # 14; with a threshold of 1/rate in place of n/rate it would be 82


@pytest.mark.parametrize("coordinates", [1, 640])
@pytest.mark.parametrize("signal", [0.0, 0.05])
def test_honest_workers_of_noise_or_of_a_weak_signal_are_not_excluded(coordinates: int, signal: float) -> None:
    assert alarms(40, 100, noise(7, coordinates, 0.0, signal), 0.1) <= most(40, 0.1)  # none, in fact


def test_momentum_makes_steps_dependent_and_sixteen_free_coordinates_make_up_for_it() -> None:
    assert alarms(100, 150, noise(7, 16, 0.9), 0.1) <= most(100, 0.1)  # none of 200 runs of 300 steps


def test_momentum_and_coordinates_that_all_move_alike_break_the_promise() -> None:
    # what the docstring warns of: a single coordinate, whose sign with momentum 0.9 stays for many steps
    assert alarms(50, 150, noise(7, 1, 0.9), 0.1) > most(50, 0.1)


def test_honest_workers_beside_liars_are_not_excluded() -> None:
    def honest(seed: int) -> Scores:
        for scores in noise(7, 640, 0.9, 0.1, inverting=3)(seed):
            scores[4:] = 0  # only the honest ones are looked at
            yield scores

    assert alarms(40, 100, honest, 0.1) <= most(40, 0.1)


def fed(
    comm: Comm, steps: int, signal: float, attack: Attack | None = None, seed: int = 0, **settings: object
) -> Signum:
    """A Signum after so many steps on gradients `signal` + N(0, 1), as what `attack` makes of them."""
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (100, 320, 65, 1)]
    optimizer = Signum(parameters, comm=comm, seed=seed, **settings)
    feed(optimizer, 0, steps, signal, attack, seed)
    return optimizer


def feed(optimizer: Signum, first: int, last: int, signal: float, attack: Attack | None = None, seed: int = 0) -> None:
    for step in range(first, last):
        random = torch.Generator().manual_seed(1000 * seed + 100 * step + optimizer.comm.rank)
        gradients = [signal + torch.randn(p.shape, generator=random) for p in optimizer.parameters]
        said = gradients if attack is None else attack(gradients, step)
        optimizer.zero_grad()
        for p, gradient in reversed(list(zip(optimizer.parameters, said, strict=True))):
            if gradient is not None:
                (p * gradient).sum().backward()
        optimizer.step()


def test_signum_with_momentum_excludes_nobody_over_pure_noise() -> None:
    def body(comm: Comm) -> int:
        runs = [fed(comm, 30, 0.0, seed=seed, quarantine=0.2) for seed in range(20)]
        assert all(len(run.quarantine.agreement) == 3 for run in runs)
        return sum(bool(run.quarantine.excluded.any()) for run in runs)

    counts = simulate(3, body)
    assert counts == [counts[0]] * 3
    assert counts[0] <= most(20, 0.2)


# Who is found


def liars(comm: Comm, kind: type[Attack]) -> Attack:
    return (kind if comm.rank >= 4 else Honest)(comm.rank, (4, 5, 6), comm.size)


@pytest.mark.parametrize("settings", [{}, {"vote": "sharded"}, {"overlap": True, "bucket": 100}, {"zero": "abstain"}])
def test_inverting_workers_are_found_by_all_ranks_at_the_same_step(settings: dict) -> None:
    def body(comm: Comm):
        optimizer = fed(comm, 40, 0.5, liars(comm, Invert), quarantine=0.001, **settings)
        votes = [vote.excluded.tolist() for vote in optimizer.votes]
        return optimizer.quarantine.since, votes, [p.detach().sum().item() for p in optimizer.parameters]

    results = simulate(7, body)
    assert results == [results[0]] * 7
    since, votes, _ = results[0]
    assert sorted(since) == [4, 5, 6]
    assert max(since.values()) < 30
    assert votes == [[False] * 4 + [True] * 3] * len(votes)
    assert len(votes) == (3 if "overlap" in settings else 1)


def test_buckets_and_shards_change_nothing() -> None:
    def body(comm: Comm, settings: dict):
        return fed(comm, 30, 0.5, liars(comm, Invert), quarantine=0.001, **settings).quarantine.state_dict()

    whole = simulate(7, body, {})
    assert whole == simulate(7, body, {"overlap": True, "bucket": 100}) == simulate(7, body, {"vote": "sharded"})


def test_a_worker_that_turns_late_is_found_too() -> None:
    def turning(step: int) -> np.ndarray:
        agree = np.full(7, 700)
        agree[6] = 700 if step < 300 else 300
        return np.stack([1000 - agree, np.full(7, 1000)], axis=1)

    quarantine = Quarantine(7)
    for step in range(400):
        quarantine.observe(turning(step), step)
    assert list(quarantine.since) == [6]
    assert quarantine.since[6] < 375  # 28 steps had it begun so, 57 after 300 honest ones


@pytest.mark.parametrize("attack", ["silent", "nan"])
@pytest.mark.filterwarnings("ignore:.*gradient of step 0 is not finite:RuntimeWarning")
def test_who_is_silent_or_has_no_number_to_give_is_never_excluded(attack: str) -> None:
    summary = learnt(attack, "3", epochs=3, quarantine=0.5)
    assert summary["quarantined"] == {}
    assert summary["agreement_by_rank"][4:] == [None] * 3


def test_a_step_without_a_vote_counts_for_nothing() -> None:
    often, seldom = Quarantine(3), Quarantine(3)
    for step in range(50):
        scores = np.array([[30, 100], [20, 100], [75, 100]])
        often.observe(scores, step)
        seldom.observe(scores, 2 * step)
        seldom.observe(np.zeros((3, 2), np.int64), 2 * step + 1)
    assert often.state_dict() | {"since": {2: 2 * often.since[2]}} == seldom.state_dict()
    assert seldom.agreement == pytest.approx([0.7, 0.8, 0.25])


# On digits: 7 workers, 13 steps an epoch


def test_three_of_seven_inverting_workers_are_found_within_sixty_steps_and_accuracy_rises_to_that_of_four() -> None:
    found = learnt("invert", "ranks:1,3,4", quarantine=0.001)
    assert set(found["quarantined"]) == {"1", "3", "4"}
    assert max(found["quarantined"].values()) < 60  # 51; 37 to 49 with the last three, seeds 0 to 2
    assert found["quarantine_refuted"] is None
    # four honest workers with the same data reach 0.933, 0.93 to 0.96 are seen with quarantine, 0.894 to 0.917 without;
    # of 360 test samples at 0.94, two accuracies differ by 0.018 (one standard deviation)
    assert found["test_accuracy"] > learnt("silent", "ranks:1,3,4")["test_accuracy"] - 0.018
    assert found["test_accuracy"] > learnt("invert", "ranks:1,3,4")["test_accuracy"]
    honest = [found["agreement_by_rank"][rank] for rank in (0, 2, 5, 6)]
    assert min(honest) > 0.7
    assert "rank 4 since step" in table(found)


def test_without_liars_nobody_is_excluded_and_no_bit_changes() -> None:
    watched, plain = learnt(epochs=3, quarantine=0.001), learnt(epochs=3)
    assert watched["quarantined"] == {}
    assert plain["quarantined"] is None
    assert watched["checksum"] == plain["checksum"]
    assert watched["agreement_by_rank"] == pytest.approx(plain["agreement_by_rank"])
    assert "quarantine      nobody" in table(watched)
    assert "quarantine" not in table(plain)


# Its limits


class Framer(BallotAttack):
    """Votes against the first honest worker that still counts."""

    def votes(self, honest, step):
        return np.where(honest[0] > 0, -1, 1).astype(np.int8)


@pytest.mark.filterwarnings("ignore:.*more than can lie where most are honest:RuntimeWarning")
def test_who_sees_the_ballots_can_frame_the_honest_until_the_quarantine_is_lifted() -> None:
    def body(comm: Comm):
        vote = Tampering(ServerVote, liars(comm, Framer))
        optimizer = fed(comm, 30, 0.0, quarantine=0.001, vote=vote)
        framed = dict(optimizer.quarantine.since)
        feed(optimizer, 30, 100, 0.0)
        assert optimizer.quarantine.refuted is not None
        assert not any(vote.excluded.any() for vote in optimizer.votes)
        return framed, optimizer.quarantine.since, optimizer.quarantine.refuted

    results = simulate(7, body)
    assert results == [results[0]] * 7
    framed, since, refuted = results[0]
    assert set(framed) <= {0, 1, 2, 3}
    assert 1 <= len(framed) <= 3  # honest workers, excluded
    assert since == {}
    assert refuted > 30


def watch(quarantine: Quarantine, scores: list[list[int]]) -> None:
    for step in range(100):
        quarantine.observe(np.array(scores), step)


def test_more_than_can_lie_are_never_excluded() -> None:
    quarantine = Quarantine(7)
    with pytest.warns(RuntimeWarning, match="4 of 7 workers disagree"):
        watch(quarantine, [[10, 100]] * 3 + [[80, 100]] * 4)
    assert not quarantine.excluded.any()
    assert quarantine.refuted is not None
    assert quarantine.agreement == pytest.approx([0.9] * 3 + [0.2] * 4)


def test_those_that_never_vote_make_no_majority() -> None:
    quarantine = Quarantine(7)
    with pytest.warns(RuntimeWarning, match="2 of 4 workers disagree"):
        watch(quarantine, [[10, 100]] * 2 + [[80, 100]] * 2 + [[0, 0]] * 3)
    assert not quarantine.excluded.any()


@pytest.mark.parametrize("workers", [1, 2])
def test_of_two_workers_none_can_be_excluded(workers: int) -> None:
    quarantine = Quarantine(workers)
    with pytest.warns(RuntimeWarning, match=f"of {workers} workers disagree"):
        watch(quarantine, [[100, 100]] * workers)
    assert not quarantine.excluded.any()


# Resuming, options, mistakes


def test_evidence_outlives_a_restart() -> None:
    def body(comm: Comm, stop: int):
        attack = liars(comm, Invert)
        optimizer = fed(comm, stop, 0.5, attack, quarantine=0.001)
        state = optimizer.state_dict()
        again = Signum([p.detach().clone().requires_grad_() for p in optimizer.parameters], comm=comm, quarantine=0.001)
        again.load_state_dict(state)
        assert again.votes[0].excluded.tolist() == optimizer.votes[0].excluded.tolist()
        feed(again, stop, 40, 0.5, attack)
        return again.quarantine.state_dict(), [p.detach().sum().item() for p in again.parameters]

    assert simulate(7, body, 5) == simulate(7, body, 35) == simulate(7, body, 40)


def test_the_flag_takes_a_rate_or_stands_alone(tmp_path) -> None:
    assert parse(["--quarantine"]).algorithm.quarantine == 0.001
    assert parse(["--quarantine", "--epochs", "3"]).algorithm.quarantine == 0.001
    assert parse(["--quarantine", "0.01"]).algorithm == AlgorithmConfig(quarantine=0.01)
    assert parse([]).algorithm.quarantine is None
    (tmp_path / "run.toml").write_text("quarantine = 0.02")
    assert parse(["--config", str(tmp_path / "run.toml")]).algorithm.quarantine == 0.02


@pytest.mark.parametrize("rate", ["0", "1", "-0.1", "nan"])
def test_what_is_no_rate_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError, match=f"--quarantine {rate}: wanted a number above 0 and below 1"):
        parse([f"--quarantine={rate}"])
    with pytest.raises(ParameterError, match="quarantine is a rate of false alarms"):
        simulate(1, lambda comm: fed(comm, 0, 0.0, quarantine=float(rate)))
    with pytest.raises(ValueError, match="rate of false alarms"):
        Quarantine(3, float(rate))


def test_without_a_vote_that_can_be_scored_there_is_no_quarantine() -> None:
    with pytest.raises(ConfigError, match=r"--quarantine 0\.001: ssdm has no such setting"):
        learnt(size=2, algorithm="ssdm", quarantine=0.001)
    with pytest.raises(ParameterError, match="vote='tree' can't be scored, which quarantine needs"):
        learnt(size=2, vote="tree", quarantine=0.001)


def test_ranks_that_differ_in_it_are_told() -> None:
    def body(comm: Comm) -> str:
        with pytest.raises(Exception, match="different parameters") as caught:
            fed(comm, 0, 0.0, quarantine=0.001 if comm.rank else 0.01)
        return type(caught.value).__name__

    assert simulate(2, body) == ["DisagreementError"] * 2
