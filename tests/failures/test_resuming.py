"""A run that is continued from a checkpoint equals one that was never interrupted, to the bit."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import STEPS, configured

from mpisign import simulate, survival, train
from mpisign.comm import Comm
from mpisign.comm.guard import Unguarded
from mpisign.errors import ConfigError, Interrupted
from mpisign.registry import BUILT_IN
from mpisign.session import Session
from mpisign.train import run

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

TIMES = {"seconds", "seconds_by_phase", "first_step_at"}


def timeless(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in TIMES}


def written(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any], bytes]:
    rows = [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = timeless(json.loads((folder / "summary.json").read_text()))
    return rows, summary, (folder / "model.safetensors").read_bytes()


def cut_off(folder: Path, to: Path, step: int) -> None:
    """Leave what a run that died right after this step's checkpoint would have left."""
    shutil.copytree(folder, to)
    (to / "summary.json").unlink()
    (to / "model.safetensors").unlink()
    for checkpoint in (to / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > step:
            shutil.rmtree(checkpoint)


CASES = [
    *({"algorithm": name} for name in BUILT_IN["algorithm"]),
    {
        "algorithm": "signum",
        "zero": "abstain",
        "vote": "tree",
        "quarantine": 0.001,
        "attack": "stale",
        "byzantine": "1",
    },
    {"algorithm": "sgd", "codec": "qsgd:4", "two_way": True},
    {"algorithm": "ssdm", "norm": "carry"},
    {"algorithm": "relaysgd", "codec": "topk:0.1", "topology": "chain"},
    {"algorithm": "relaysgd", "delay": "overlapped", "message_loss": 0.2, "fill": "refresh"},
    {"algorithm": "dpsgd", "message_loss": 0.2, "local": "adam"},
]


@pytest.fixture
def steps_taken(monkeypatch) -> list[int]:
    """The numbers of the steps that rank 0 takes, from 0 on; a run that begins anew takes them all."""
    taken = list[int]()
    original = Session.step

    def step(self: Session) -> None:
        if self.comm.rank == 0:
            taken.append(self.steps_taken)
        original(self)

    monkeypatch.setattr(Session, "step", step)
    return taken


@pytest.mark.parametrize("settings", CASES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_a_continued_run_equals_an_uninterrupted_one(
    settings: dict[str, Any], tmp_path: Path, steps_taken: list[int]
) -> None:
    if settings.get("vote") == "tree" and "quarantine" in settings:
        settings = settings | {"vote": "sharded"}
    whole = configured(tmp_path / "whole", checkpoint_every=1, checkpoints_kept=STEPS, **settings)
    simulate(4, run, whole)
    for step in (1, 9, 10, 11, STEPS):  # an epoch has ten steps
        folder = tmp_path / f"from {step}"
        cut_off(tmp_path / "whole", folder, step)
        steps_taken.clear()
        simulate(4, run, configured(folder, resume="auto", **settings))
        assert steps_taken == list(range(step, STEPS))
        assert written(folder) == written(tmp_path / "whole"), f"continued after step {step}"


def test_a_run_that_is_asked_to_stop_stops_everywhere_after_the_same_step_and_goes_on(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(survival, "PERIOD", 0)
    monkeypatch.setattr(survival, "SHARE", 1e9)  # an agreement after each step
    simulate(3, run, configured(tmp_path / "whole", steps=40, epochs=10))

    class Impatient(Unguarded):
        def __init__(self, rank: int) -> None:
            self.rank, self.calls = rank, 0

        @property
        def stop_is_wanted(self) -> bool:
            self.calls += 1
            return self.rank == 2 and self.calls > 6

    def body(comm: Comm) -> Any:
        return run(comm, configured(tmp_path / "cut", steps=40, epochs=10), Impatient(comm.rank))

    with pytest.raises(Interrupted, match="after step"):
        simulate(3, body)
    assert not (tmp_path / "cut" / "summary.json").exists()
    simulate(3, run, configured(tmp_path / "cut", steps=40, epochs=10, resume="auto"))
    assert written(tmp_path / "cut")[1:] == written(tmp_path / "whole")[1:]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", BUILT_IN["algorithm"])
@pytest.mark.parametrize("ranks", [3, 6])
def test_another_number_of_ranks_goes_on_from_a_checkpoint(algorithm: str, ranks: int, tmp_path: Path) -> None:
    simulate(4, run, configured(tmp_path, checkpoint_every=7, algorithm=algorithm))
    before = rows(tmp_path)[0]
    summary = simulate(ranks, run, configured(tmp_path, resume="auto", steps=None, epochs=4, algorithm=algorithm))[0]
    assert summary["ranks"] == ranks
    assert summary["test_loss"] < before["test_loss"]
    assert [row["epoch"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    assert rows(tmp_path)[-1]["checksum"] == summary["checksum"]


def test_every_epoch_is_judged_once_where_more_ranks_go_on_in_shorter_ones(tmp_path: Path) -> None:
    """Two ranks, 15 steps an epoch, stop at step 31; four go on in epochs of 8."""
    simulate(2, run, configured(tmp_path, steps=31, epochs=3, checkpoint_every=31))
    (tmp_path / "summary.json").unlink()
    told = rows(tmp_path)[:2]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    simulate(4, run, configured(tmp_path, steps=None, epochs=3, resume="auto"))
    assert [(row["epoch"], row["step"]) for row in rows(tmp_path)] == [(1, 15), (2, 30), (3, 24)]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["epochs"], summary["checksum"]) == (3, rows(tmp_path)[-1]["checksum"])


def test_a_longer_run_that_is_killed_is_not_done_because_a_shorter_one_was(tmp_path: Path, monkeypatch) -> None:
    simulate(2, run, configured(tmp_path, steps=None, epochs=1, checkpoint_every=5))
    with monkeypatch.context() as patch:
        original = Session.step

        def step(self: Session) -> None:
            if self.steps_taken == 22:
                raise KeyboardInterrupt
            original(self)

        patch.setattr(Session, "step", step)
        with pytest.raises(KeyboardInterrupt):
            simulate(2, run, configured(tmp_path, steps=None, epochs=3, checkpoint_every=5, resume="auto"))
    assert not (tmp_path / "summary.json").exists()
    summary = simulate(2, run, configured(tmp_path, steps=None, epochs=3, checkpoint_every=5, resume="auto"))[0]
    assert (summary["epochs"], summary["steps"]) == (3, 45)


def test_what_is_overwritten_leaves_no_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    simulate(2, run, configured(tmp_path, checkpoint_every=7))
    other = {"seed": 3, "steps": 5, "checkpoint_every": 5}
    with pytest.raises(ConfigError, match="holds a run"):
        simulate(2, run, configured(tmp_path, **other))
    simulate(2, run, configured(tmp_path, overwrite=True, **other))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000005"]
    assert simulate(2, run, configured(tmp_path, resume="auto", seed=3, steps=9))[0]["steps"] == 9


def test_the_first_rank_alone_says_whether_a_run_is_done(tmp_path: Path, monkeypatch) -> None:
    simulate(3, run, configured(tmp_path))
    looked = []
    original = train._done

    def done(config: Any) -> Any:
        looked.append(threading.current_thread().name)
        return original(config)

    monkeypatch.setattr(train, "_done", done)
    assert simulate(3, run, configured(tmp_path, resume="auto"))[0]["steps"] == STEPS
    assert looked == ["rank 0"]


def test_another_vote_goes_on_with_the_same_bits(tmp_path: Path, steps_taken: list[int]) -> None:
    simulate(4, run, configured(tmp_path / "whole", vote="server"))
    simulate(4, run, configured(tmp_path / "cut", vote="server", checkpoint_every=7))
    cut_off(tmp_path / "cut", tmp_path / "on", 7)
    steps_taken.clear()
    simulate(4, run, configured(tmp_path / "on", vote="sharded", resume="auto"))
    assert steps_taken == list(range(7, STEPS))
    assert written(tmp_path / "on")[2] == written(tmp_path / "whole")[2]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"seed": 1}, "--seed 0, this one has 1"),
        ({"lr": 0.5}, "--lr None, this one has 0.5"),
        ({"algorithm": "sgd"}, "signum"),
    ],
)
def test_what_cannot_change_on_the_way_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    simulate(2, run, configured(tmp_path, checkpoint_every=7))
    with pytest.raises(ConfigError, match="--resume: the checkpoint is of a run with") as caught:
        simulate(2, run, configured(tmp_path, resume="auto", **change))
    assert words in str(caught.value)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, capsys, steps_taken: list[int]
) -> None:
    simulate(2, run, configured(tmp_path / "whole"))
    simulate(2, run, configured(tmp_path / "cut", checkpoint_every=5))
    cut_off(tmp_path / "cut", tmp_path / "on", 10)
    file = tmp_path / "on" / "checkpoints" / "step-00000010" / "rank-0001-of-0002.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-5] ^= 1
    file.write_bytes(damaged)
    steps_taken.clear()
    simulate(2, run, configured(tmp_path / "on", resume="auto"))
    assert steps_taken == list(range(5, STEPS))
    assert "rank-0001-of-0002.safetensors" in capsys.readouterr().err
    assert written(tmp_path / "on") == written(tmp_path / "whole")


def test_resume_begins_where_there_is_no_checkpoint_and_a_run_that_is_done_stays_as_it_is(
    tmp_path: Path, capsys
) -> None:
    for _ in range(2):
        simulate(2, run, configured(tmp_path, resume="auto"))
        first = written(tmp_path)
    assert first[1]["steps"] == STEPS
    assert "is done, nothing is left to do" in capsys.readouterr().out
    assert written(tmp_path) == first


def test_numbers_that_do_not_matter_do_not_hinder(tmp_path: Path) -> None:
    config = configured(tmp_path, checkpoint_every=7)
    simulate(2, run, config)
    longer = replace(config, run=replace(config.run, steps=20, epochs=4, resume="auto"))
    assert simulate(2, run, longer)[0]["steps"] == 20
