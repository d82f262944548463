"""Ranks that die in the simulator: the others go on together, from what all remember."""

from pathlib import Path
from typing import Any

import pytest
import torch
from running import configured

from mpisign import checksum, simulate, survival
from mpisign import train as train_command
from mpisign.checkpoints import copied
from mpisign.comm import Comm
from mpisign.comm.guard import Unguarded
from mpisign.config import Config, FailuresConfig
from mpisign.devices import Choice
from mpisign.errors import ConfigError, Deserted, MpisignError, RankFailure
from mpisign.registry import BUILT_IN
from mpisign.session import Session
from mpisign.tracking import Tracker
from mpisign.training import train

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


class Events(Tracker):
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.losses: dict[int, float] = {}

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.losses[metrics["epoch"]] = metrics["train_loss"]

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def dying(deaths: dict[int, str], monkeypatch) -> None:
    """Let founders die: at the beginning of a step, by its number, or of another method of the session."""
    for name in ("step", "judge", "start", "summary"):
        original = getattr(Session, name)

        def method(self: Session, name: str = name, original: Any = original) -> Any:
            when = deaths.get(self.comm.members[self.comm.rank])
            if when == name or (name == "step" and when == f"step {self.batches.taken}"):
                self.comm.die()
            return original(self)

        monkeypatch.setattr(Session, name, method)


def survivors_of(size: int, config: Config, deaths: dict[int, str], monkeypatch) -> tuple[list[Any], Events]:
    monkeypatch.setattr(survival, "PERIOD", 0)
    monkeypatch.setattr(survival, "SHARE", 1.0)  # an agreement after each few steps
    dying(deaths, monkeypatch)
    events = Events()

    def body(comm: Comm) -> tuple[dict[str, Any], int]:
        summary, model = train(comm, config, lambda continues: events)
        return summary, checksum(model.parameters())

    return [result for result in simulate(size, body) if result is not None], events


@pytest.mark.parametrize("algorithm", BUILT_IN["algorithm"])
@pytest.mark.parametrize("victim", [0, 3])
def test_the_others_go_on_with_one_model(algorithm: str, victim: int, monkeypatch) -> None:
    config = configured(None, steps=None, algorithm=algorithm, batch_size=24)
    left, events = survivors_of(5, config, {victim: "step 9"}, monkeypatch)
    assert len(left) == 4
    assert len({model for _, model in left}) == 1
    summary = left[0][0]
    assert summary["ranks_left"] == [rank for rank in range(5) if rank != victim]
    assert summary["epochs"] == 2
    assert events.losses[2] < events.losses[1]
    assert [event["lost"] for event in events.events] == [[victim]]


@pytest.mark.parametrize("vote", ["server", "sharded", "tree", "hierarchical", "auto"])
def test_every_vote_is_laid_out_anew(vote: str, monkeypatch) -> None:
    left, _ = survivors_of(5, configured(None, steps=None, vote=vote), {0: "step 9"}, monkeypatch)
    assert len(left) == 4
    assert len({model for _, model in left}) == 1


@pytest.mark.parametrize(
    "deaths",
    [
        {1: "step 4", 3: "step 4"},
        {0: "step 4", 1: "step 11"},
        {2: "step 13", 4: "judge"},
        {0: "start", 1: "start"},
        {3: "summary"},
        {0: "summary", 2: "summary"},
        {0: "step 3", 1: "step 5", 2: "step 7", 3: "step 9", 4: "step 11"},
    ],
)
@pytest.mark.parametrize("algorithm", ["signum", "relaysgd"])
def test_several_die_whenever_they_like(deaths: dict[int, str], algorithm: str, monkeypatch) -> None:
    config = configured(None, steps=None, algorithm=algorithm, batch_size=24)
    left, events = survivors_of(6, config, deaths, monkeypatch)
    assert len(left) == 6 - len(deaths)
    assert len({model for _, model in left}) == 1
    assert sorted(rank for event in events.events for rank in event["lost"]) == sorted(deaths)
    assert left[0][0]["epochs"] == 2


def test_nobody_is_lost_to_a_run_in_which_nobody_dies(monkeypatch) -> None:
    quiet, events = survivors_of(4, configured(None), {}, monkeypatch)
    monkeypatch.undo()
    assert not events.events
    plain = simulate(4, lambda comm: train(comm, configured(None), Tracker())[0]["checksum"])
    assert [summary["checksum"] for summary, _ in quiet] == plain


def test_a_liar_stays_one_whatever_number_it_gets(monkeypatch) -> None:
    liars = {"attack": "invert", "byzantine": "ranks:5", "quarantine": 0.001}
    config = configured(None, steps=None, batch_size=4, epochs=2, **liars)
    left, _ = survivors_of(7, config, {0: "step 7", 1: "step 8"}, monkeypatch)
    summary = left[0][0]
    assert summary["byzantine"] == [5]
    assert set(summary["quarantined"]) == {"5"}
    assert summary["agreement_by_rank"][0] is None


@pytest.mark.parametrize("algorithm", BUILT_IN["algorithm"])
@pytest.mark.parametrize("inherits", [False, True])
def test_a_newcomer_has_anothers_weights_and_the_momentum_that_was_asked_for(algorithm: str, inherits: bool) -> None:
    config = configured(None, steps=None, algorithm=algorithm, batch_size=24)

    def body(comm: Comm) -> tuple[int, int]:
        session = Session(comm, config, Tracker())
        session.start()
        for _ in range(4):
            session.step()
        saved = copied(session.state())
        for _ in range(3):
            session.step()
        memory = survival.Memory(is_new=comm.rank == 1)
        if comm.rank != 1:
            memory.keep(session.state())
        state = memory.common(comm, lambda told: survival.with_momentum(told, saved) if inherits else told)
        assert state is not None
        fresh = Session(comm, config, Tracker())
        fresh.restore(state)
        if comm.rank == 1:
            found = own_part(fresh)
            wanted = own_part_of(saved["optimizer"]["state"], fresh) if inherits else {}
            assert found.keys() == wanted.keys()
            assert all(torch.equal(value, wanted[name]) for name, value in found.items())
        at_first = checksum(fresh.model.parameters())
        for _ in range(3):
            fresh.step()
        return (at_first, checksum(fresh.model.parameters())) if fresh.optimizer.replicated else (0, 0)

    assert len(set(simulate(3, body))) == 1  # where models are equal, they stay equal


def own_part(session: Session) -> dict[tuple[int, str], torch.Tensor]:
    return own_part_of(session.optimizer.state_dict()["state"], session)


def own_part_of(states: dict[int, Any], session: Session) -> dict[tuple[int, str], torch.Tensor]:
    """What isn't zero of momenta and residuals: neither the model's nor a message."""
    return {
        (index, name): value
        for index, kept in states.items()
        for name, value in kept.items()
        if name not in session.optimizer.shared and not name.startswith("own ") and value.any()
    }


def test_a_newcomer_remembers_what_it_was_told_and_the_others_that_it_is_new() -> None:
    def body(comm: Comm) -> Any:
        memory = survival.Memory(is_new=comm.rank == 1)
        for taken in (4, 5) if comm.rank != 1 else ():
            memory.keep({"optimizer": {"state": {}}, "shared": [], "members": [0, 1, 2], "taken": taken})
        first, second = memory.common(comm), memory.common(comm)  # another rank dies before the next agreement
        assert first is not None
        assert second is not None
        return first["taken"], second["taken"], first["members"], second["members"]

    assert simulate(3, body) == [(5, 5, [0, -1, 2], [0, -1, 2])] * 3


def test_agreements_are_numbered_whatever_becomes_of_the_steps() -> None:
    def body(comm: Comm) -> Any:
        memory = survival.Memory()
        for taken in (
            (226, 120) if comm.rank else (226,)
        ):  # epochs have become shorter; rank 0 was not at the last agreement
            memory.keep({"taken": taken})
        state = memory.common(comm)
        return state and state["taken"]

    assert simulate(3, body) == [226] * 3


class Asked(Unguarded):
    """Asks to stop after some steps, and kills its rank after fewer."""

    def __init__(self, comm: Comm, dies: bool) -> None:
        self.comm, self.dies, self.calls = comm, dies, 0

    @property
    def stop_is_wanted(self) -> bool:
        return self.calls > 30

    def alive(self) -> None:
        self.calls += 1
        if self.dies and self.calls == 10:
            self.comm.die()


def test_when_rank_0_is_dead_the_first_that_is_left_speaks_for_all(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(survival, "PERIOD", 0)
    monkeypatch.setattr(survival, "SHARE", 1e9)  # an agreement after each step

    def body(comm: Any) -> int:
        comm.leave = lambda code: code
        config = configured(tmp_path, steps=None, epochs=100)
        return train_command._under_mpi(config, comm, Asked(comm, comm.rank == 0), Choice("cpu"), None)

    assert simulate(3, body) == [None, 85, 0]
    assert capsys.readouterr().err.count("asked to stop: all ranks have written a checkpoint") == 1


def test_a_death_at_the_start_gives_nobody_leave_to_overwrite(tmp_path: Path) -> None:
    simulate(3, train_command.run, configured(tmp_path))
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def body(comm: Comm) -> Any:
        if comm.rank == 2:
            comm.die()
        return train_command.run(comm, configured(tmp_path, seed=2))

    with pytest.raises(ConfigError, match="holds a run"):
        simulate(3, body)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == kept


def test_messages_that_fail_though_nobody_has_died_end_the_run(monkeypatch) -> None:
    def step(self: Session) -> None:
        raise RankFailure("a message is cut off")

    monkeypatch.setattr(Session, "step", step)
    with pytest.raises(MpisignError, match="messages fail though no rank has died: a message is cut off"):
        simulate(3, lambda comm: train(comm, configured(None), Tracker()))


def test_who_died_before_training_is_told_of_too(monkeypatch) -> None:
    events = Events()

    def body(comm: Comm) -> Any:
        if comm.rank == 1:
            comm.die()
        with pytest.raises(RankFailure):
            comm.barrier()
        return train(comm.survivors(), configured(None), lambda continues: events)[0]["ranks_left"]

    assert simulate(3, body) == [[0, 2], None, [0, 2]]
    assert [event["lost"] for event in events.events] == [[1]]


def test_of_a_network_in_two_parts_the_larger_goes_on() -> None:
    def body(comm: Comm) -> Any:
        if comm.rank in dead:
            comm.die()
        with pytest.raises(RankFailure):
            comm.barrier()
        return comm.survivors().members

    dead = {4, 5}
    assert simulate(6, body, per_node=2)[0] == (0, 1, 2, 3)
    dead = {3, 4, 5}
    assert simulate(6, body, per_node=2)[0] == (0, 1, 2)  # of two halves that with the lowest rank
    dead = {0, 1, 2}
    with pytest.raises(Deserted, match="only 3 of 6 ranks are left, on several machines"):
        simulate(6, body, per_node=2)
    dead = {0, 1, 2, 3}
    assert simulate(6, body)[5] == (4, 5)  # on one machine nobody is cut off


@pytest.mark.parametrize("lost_data", ["leave", "redistribute"])
def test_the_data_of_the_dead_are_left_or_dealt_anew(lost_data: str, monkeypatch) -> None:
    held: list[int] = []
    original = Session.summary

    def summary(self: Session) -> Any:
        held.append(len(self.shard.y_train))
        return original(self)

    monkeypatch.setattr(Session, "summary", summary)
    config = configured(None, steps=None)
    config = Config(
        config.problem, config.algorithm, config.network, config.run, failures=FailuresConfig(lost_data=lost_data)
    )
    survivors_of(3, config, {1: "step 4"}, monkeypatch)
    samples = 1437
    assert sum(held) == (samples if lost_data == "redistribute" else samples * 2 // 3)


def test_a_rank_that_dies_is_a_failure_in_the_verbs_of_the_others() -> None:
    def body(comm: Comm) -> Any:
        if comm.rank == 1:
            comm.die()
        with pytest.raises(RankFailure, match="another rank has died"):
            comm.barrier()
        left = comm.survivors()
        return left.members, left.founders, left.allreduce(torch.tensor([1])).item()

    assert simulate(4, body) == [((0, 2, 3), 4, 3), None, ((0, 2, 3), 4, 3), ((0, 2, 3), 4, 3)]
