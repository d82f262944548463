"""A worker that was left behind goes on from the others' state, with its own momentum, data and chance."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from running import STEPS, configured

from mpisign import checksum, simulate
from mpisign.batches import Batches
from mpisign.checkpoints import Folder, from_block, load, steps, to_block
from mpisign.comm import Comm
from mpisign.errors import CheckpointError
from mpisign.session import Session
from mpisign.tracking import Tracker
from mpisign.train import run

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def batches(shuffles: bool = True) -> Batches:
    return Batches(np.random.default_rng(1), 50, 50, 5, 10, 4, None, shuffles)


@pytest.mark.parametrize("shuffles", [True, False])
@pytest.mark.parametrize(
    "before, after", [(0, 0), (0, 1), (0, 10), (3, 7), (3, 10), (3, 11), (10, 10), (10, 11), (9, 35)]
)
def test_batches_after_a_jump_are_those_of_one_who_took_all(shuffles: bool, before: int, after: int) -> None:
    whole, jumping = batches(shuffles), batches(shuffles)
    for _ in range(after):
        whole.take()
    for _ in range(before):
        jumping.take()
    jumping.catch_up(after)
    assert jumping.taken == whole.taken
    for _ in range(40 - after):
        assert torch.equal(jumping.take(), whole.take())


def test_a_state_comes_back_from_its_block_and_other_bytes_are_refused() -> None:
    shared = torch.arange(5, dtype=torch.float64)
    state = {"a": shared, "b": [shared[1:3], None, 0.1, float("nan")], 3: np.ones(2, np.bool_), "c": ("x", 2**60)}
    block = to_block(state)
    shared += 1
    back = from_block(block)
    assert back["a"].tolist() == [0, 1, 2, 3, 4]
    assert (back["b"][1:3], back["c"], back[3].tolist()) == ([None, 0.1], ("x", 2**60), [True, True])
    for damaged in (
        block[:7],
        block[:-1],
        block[8:],
        torch.zeros(20, dtype=torch.uint8),
        torch.full((64,), 255, dtype=torch.uint8),
    ):
        with pytest.raises(CheckpointError):
            from_block(damaged)


@pytest.mark.parametrize("algorithm", ["signum", "signsgd", "lion"])
def test_who_catches_up_has_the_others_weights_and_its_own_momentum(algorithm: str) -> None:
    config = configured(
        None, steps=30, epochs=4, algorithm=algorithm, quarantine=0.001 if algorithm == "signum" else None
    )

    def body(comm: Comm) -> tuple[Any, ...]:
        ahead, behind = (Session(comm, config, Tracker()) for _ in range(2))
        for session, count in ((ahead, 23), (behind, 4)):
            session.start()
            for _ in range(count):
                if session.epoch_is_due:
                    session.judge()
                session.step()
        momenta = [{name: value.clone() for name, value in kept.items()} for kept in behind.optimizer.state.values()]
        behind.catch_up(from_block(to_block(ahead.common_state())))
        assert checksum(behind.model.parameters()) == checksum(ahead.model.parameters())
        for before, after in zip(momenta, behind.optimizer.state.values(), strict=True):
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
        assert behind.metrics == ahead.metrics
        assert behind.rates.get_last_lr() == ahead.rates.get_last_lr()
        assert behind.steps_taken == ahead.steps_taken == 23
        assert torch.equal(behind.batches.take(), ahead.batches.take())
        assert behind.own.batches == 4
        behind.batches.taken = ahead.batches.taken = 23
        while not behind.is_over:
            if behind.epoch_is_due:
                behind.judge()
            else:
                behind.step()
        return checksum(behind.model.parameters()), behind.steps_taken, len(behind.metrics)

    results = simulate(3, body)
    assert len(set(results)) == 1
    assert results[0][1:] == (30, 3)


def test_a_checkpoint_without_a_workers_own_file_is_continued_from_what_the_others_share(tmp_path: Path) -> None:
    simulate(3, run, configured(tmp_path / "whole"))

    def body(comm: Comm) -> None:
        session = Session(comm, config, Tracker())
        session.start()
        while session.steps_taken < 12:
            if session.epoch_is_due:
                session.judge()
            session.step()
        from mpisign.options import to_toml

        details = {"config": to_toml(config)}
        folder = Folder(tmp_path / "cut" / "checkpoints", comm.rank, 3, run="x")
        if comm.rank != 1:
            folder.save(12, session.state(), details)
            folder.wait()
        if comm.rank == 0:
            absent = Folder(tmp_path / "cut" / "checkpoints", 1, 3, run="x")
            absent.save(12, session.common_state(), details)
            absent.wait()

    config = configured(tmp_path / "cut", checkpoint_every=12)
    simulate(3, body)
    (found,) = steps(tmp_path / "cut" / "checkpoints")
    assert found.problem is None
    assert "common" in load(found, 1)[0]
    simulate(3, run, configured(tmp_path / "cut", resume="auto"))
    summary = json.loads((tmp_path / "cut" / "summary.json").read_text())
    whole = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert summary["checksum"] != whole["checksum"]  # one worker's momentum is lost
    assert summary["test_loss"] == pytest.approx(whole["test_loss"], rel=0.2)  # two steps later, little has come of it
