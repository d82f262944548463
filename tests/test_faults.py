import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from running import configured

from mpisign import simulate, survival
from mpisign.errors import ConfigError
from mpisign.faults import KINDS, Fault, Faults, parse_faults
from mpisign.tracking import Tracker
from mpisign.train import main
from mpisign.training import train

NONE = """

kill
kill:
kill:rank=1
kill:step=3
kill:rank=1,step=3,after=2
kill:rank=-1,step=3
kill:rank=1,step=3,for=2
kill:rank=1,step=1,step=2
kill:rank=1,step=3;
burn:rank=1,step=3
slow:rank=1,step=3
slow:rank=1,factor=0.5
slow:rank=1,factor=nan
drop:rank=1,share=1
stop:rank=1,step=3,for=0
nan:rank=1,step=x
""".splitlines()[1:]


@pytest.mark.parametrize("spec", NONE)
def test_what_is_no_fault_is_refused_with_an_example(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"wanted (kill:rank=3,step=17|times of at least 0)"):
        parse_faults(spec)


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(ConfigError):
        assert all(fault.kind in KINDS for fault in parse_faults(text))


def test_a_rank_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="ranks are 0 to 3"):
        Faults(parse_faults("kill:rank=4,step=0"), 0, 4, 10)


def test_chance_is_the_seeds_and_takes_a_rank_once() -> None:
    faults = [Fault("kill")] * 3

    def victims(seed: int) -> list[int]:
        return [len(Faults(faults, rank, 6, 100, seed)._mine) for rank in range(6)]

    assert victims(0) == victims(0)
    assert sorted(victims(1)) == [0, 0, 0, 1, 1, 1]
    assert len({tuple(victims(seed)) for seed in range(10)}) > 1


def test_faults_strike_who_and_when_they_should_and_say_so(tmp_path: Path) -> None:
    dead: list[int] = []
    faults = Faults(
        parse_faults("kill:rank=1,step=3;nan:rank=1,step=1"), 1, 2, 9, log=tmp_path / "log", die=lambda: dead.append(1)
    )
    p = torch.ones(2, requires_grad=True)
    for step in range(5):
        p.grad = torch.ones(2)
        faults.before_update(step, [p], 0.0)
        assert bool(p.grad.isnan().all()) == (step == 1)
        assert dead == [1] * (step >= 3)
    written = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(event["kind"], event["step"]) for event in written] == [("nan", 1), ("kill", 3)]
    assert faults._mine == []
    assert not Faults(parse_faults("kill:rank=1,step=3"), 0, 2, 9)._mine


def test_a_worker_whose_gradients_are_dropped_abstains_as_often_as_said() -> None:
    faults, p, dropped = Faults(parse_faults("drop:rank=0,share=0.3"), 0, 1, 1), torch.ones(1, requires_grad=True), 0
    for step in range(1000):
        p.grad = torch.ones(1)
        faults.before_update(step, [p], 0.0)
        dropped += p.grad is None
    assert abs(dropped - 300) < 5 * math.sqrt(1000 * 0.3 * 0.7)


def test_a_run_survives_what_is_injected(capsys, monkeypatch) -> None:
    monkeypatch.setattr(survival, "PERIOD", 0)
    faults = "kill:rank=0,step=3;nan:rank=2,step=1;slow:rank=1,factor=1.5"
    assert main(["--simulate=4", "--steps=6", f"--inject={faults}"]) == 0
    out, err = capsys.readouterr()
    assert "rank 0: kill, as --inject says" in err
    assert "rank 0 died: 3 of 4 go on" in out
    assert "1 gradients; their workers abstained" in out


def test_simulated_ranks_cannot_be_stopped(capsys) -> None:
    assert main(["--simulate=2", "--steps=1", "--inject=stop:rank=0,step=0"]) == 2
    assert "simulated ranks know no time" in capsys.readouterr().err


def test_a_fault_that_cannot_be_is_refused_on_all_ranks() -> None:
    config = configured(None, inject="kill:rank=7,step=0")
    with pytest.raises(ConfigError, match="ranks are 0 to 1"):
        simulate(2, lambda comm: train(comm, config, Tracker()))
