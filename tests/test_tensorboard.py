"""--log tensorboard: what is written is read back, with a stand-in for tensorboardX where that is not installed."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpisign import survival
from mpisign.errors import EnvironmentProblem
from mpisign.tensorboard import TensorBoard
from mpisign.train import main

SHORT = ["--simulate=3", "--steps=16", "--batch-size=48", "--log=tensorboard"]


class Writer:
    """Notes what it is told, as a file does."""

    opened: list["Writer"]

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step, self.is_open = Path(folder), purge_step, True
        self.scalars: list[tuple[str, float, int]] = []
        self.texts: list[tuple[str, str, int]] = []
        Writer.opened.append(self)

    def add_scalar(self, *said: object) -> None:
        self.scalars.append(said)

    def add_text(self, *said: object) -> None:
        self.texts.append(said)

    def flush(self) -> None:
        assert self.is_open

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def written(monkeypatch) -> list[Writer]:
    Writer.opened = []
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=Writer))
    return Writer.opened


def test_each_epochs_figures_are_written_by_rank_0_alone(written, tmp_path: Path) -> None:
    assert main([*SHORT, f"--output={tmp_path / 'run'}"]) == 0
    (writer,) = written
    assert (writer.folder, writer.is_open) == (tmp_path / "run" / "tensorboard", False)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    wanted = [
        (name, value, row["step"])
        for row in rows
        for name, value in row.items()
        if isinstance(value, float | int) and name not in ("epoch", "step")
    ]
    assert writer.scalars == wanted
    assert {"test_accuracy", "train_loss", "bytes_sent", "seconds"} <= {name for name, _, _ in wanted}
    ((name, text, step),) = writer.texts
    assert (name, step) == ("summary", 16)
    assert "test accuracy" in text


def test_what_befell_is_told_by_whoever_is_the_first_rank_then(written, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(survival, "PERIOD", 0)
    faults = "kill:rank=2,step=4;kill:rank=0,step=13"
    assert main([*SHORT, f"--inject={faults}", f"--output={tmp_path / 'run'}"]) == 0
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    failures = [event for event in events if event["event"] == "failure"]
    told = [said for writer in written for said in writer.texts if said[0] == "failure"]
    assert told == [("failure", event["message"], event["step"]) for event in failures]
    assert [writer.purge_step for writer in written if writer.purge_step] == [1, *(e["step"] + 1 for e in failures)]
    assert len({step for writer in written for name, _, step in writer.scalars if name == "seconds"}) == 2


def test_files_of_an_earlier_run_go_and_those_of_a_continued_one_stay(written, tmp_path: Path) -> None:
    old, other = tmp_path / "events.out.tfevents.1", tmp_path / "notes.txt"
    for file in (old, other):
        file.write_text("")
    TensorBoard(tmp_path, continues=True).begin(1, 1)
    assert old.exists()
    TensorBoard(tmp_path).begin(1, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_without_tensorboardx_it_says_what_to_install_and_writes_nothing(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'mpisign\[tensorboard\]'"):
        TensorBoard(tmp_path)
    assert main([*SHORT, f"--output={tmp_path / 'run'}"]) == 2
    assert "pip install 'mpisign[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_it_needs_a_folder(capsys) -> None:
    assert main(SHORT) == 2
    assert "--log tensorboard: is written into the folder of --output" in capsys.readouterr().err


def test_the_real_one_writes_files_that_hold_the_figures(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    assert main([*SHORT, f"--output={tmp_path / 'run'}"]) == 0
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    found, raw = {}, file.read_bytes()
    while raw:  # a record: its length in 8 bytes, 4 of their checksum, itself, and 4 of its checksum
        size = int.from_bytes(raw[:8], "little")
        event = Event.FromString(raw[12 : 12 + size])
        raw = raw[16 + size :]
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert found["test_accuracy", row["step"]] == pytest.approx(row["test_accuracy"], rel=1e-6)  # float32
