"""Saving while training goes on, deleting what is superfluous, and what disks and kills do to it."""

import errno
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from saved_states import plain_state, same

from mpisign.checkpoints import Folder, folder, load, steps
from mpisign.checkpoints.names import file_name, step_folder
from mpisign.errors import CheckpointError


def ranks(path: Path, size: int, keep: int = 2, run: str = "a") -> list[Folder]:
    return [Folder(path, rank, size, keep, run) for rank in range(size)]


def save(folders: list[Folder], step: int) -> None:
    for one in folders:
        one.save(step, plain_state(one.rank, step))
    for one in folders:
        one.wait()


def listing(path: Path) -> list[str]:
    """All files, as 120/2-of-3."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [f"{int(f.parent.name[5:])}/{int(f.name[5:9])}-of-{int(f.name[13:17])}{f.suffix[12:]}" for f in files]


def test_a_save_returns_while_it_is_written_and_later_changes_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, one = threading.Event(), Folder(tmp_path, 0, 1)

    def slowly(*arguments: Any) -> None:
        assert go.wait(60)
        write(*arguments)

    write = folder.write
    monkeypatch.setattr(folder, "write", slowly)
    x = torch.zeros(5)
    one.save(1, {"x": x})
    x += 1
    assert steps(tmp_path) == [] or steps(tmp_path)[0].problem
    waiting = threading.Thread(target=one.save, args=(2, {"x": x}))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # at most one write is under way
    go.set()
    waiting.join(60)
    one.wait()
    assert [load(found, 0)[0]["x"].tolist() for found in steps(tmp_path)] == [[1.0] * 5, [0.0] * 5]


def test_the_last_k_complete_checkpoints_are_kept(tmp_path: Path) -> None:
    for keep in (1, 3):
        folders = ranks(tmp_path / str(keep), 2, keep)
        for step in range(10, 70, 10):
            save(folders, step)
        for one in folders:
            one.prune()
        assert [found.step for found in steps(tmp_path / str(keep))] == [60, 50, 40][:keep]
        assert all(found.problem is None for found in steps(tmp_path / str(keep), full=True))
        assert len(list((tmp_path / str(keep)).iterdir())) == keep  # empty folders are gone


def test_a_rank_that_is_ahead_deletes_nothing_that_is_needed(tmp_path: Path) -> None:
    ahead, behind = ranks(tmp_path, 2)
    save([ahead, behind], 10)
    for step in (20, 30, 40):
        save([ahead], step)
    assert "10/0-of-2" in listing(tmp_path)
    save([behind], 20)
    save([ahead], 50)
    assert [found.step for found in steps(tmp_path) if found.problem is None] == [20, 10]
    save([behind], 30)
    assert listing(tmp_path) == [
        "10/0-of-2",
        "20/0-of-2",
        "20/1-of-2",
        "30/0-of-2",
        "30/1-of-2",
        "40/0-of-2",
        "50/0-of-2",
    ]
    ahead.prune()
    assert listing(tmp_path)[0] == "20/0-of-2"


def test_a_checkpoint_whose_headers_are_damaged_does_not_count_as_kept(tmp_path: Path) -> None:
    folders = ranks(tmp_path, 2)
    for step in (10, 20):
        save(folders, step)
    os.truncate(step_folder(tmp_path, 20) / file_name(1, 2), 1000)
    save(folders, 30)
    for one in folders:
        one.prune()
    assert [(found.step, found.problem is None) for found in steps(tmp_path)] == [(30, True), (20, False), (10, True)]


def test_checkpoints_of_another_run_do_not_push_out_one_s_own(tmp_path: Path) -> None:
    for step in (100, 110):
        save(ranks(tmp_path, 2, run="before"), step)
    folders = ranks(tmp_path, 2, run="from the start")
    for step in (10, 20, 30, 40):
        save(folders, step)
    assert [found.step for found in steps(tmp_path) if found.run != "before" and found.problem is None] == [40, 30]
    for step in (120, 130):
        save(folders, step)
    for one in folders:
        one.prune()
    assert [found.step for found in steps(tmp_path)] == [130, 120]


def test_what_a_larger_run_left_is_deleted_by_a_smaller_one(tmp_path: Path) -> None:
    for step in (10, 20):
        save(ranks(tmp_path, 5), step)
    folders = ranks(tmp_path, 2, run="b")
    save(folders, 20)
    assert [(found.step, found.size) for found in steps(tmp_path)] == [(20, 2), (20, 5), (10, 5)]
    for step in (30, 40):
        save(folders, step)
    for one in folders:
        one.prune()
    assert listing(tmp_path) == ["30/0-of-2", "30/1-of-2", "40/0-of-2", "40/1-of-2"]


def test_what_a_killed_writer_left_is_cleaned_up_by_the_next_folder_of_its_rank(tmp_path: Path) -> None:
    save(ranks(tmp_path, 3), 10)
    for rank in range(3):
        step_folder(tmp_path, 20).mkdir(exist_ok=True)
        (step_folder(tmp_path, 20) / (file_name(rank, 3) + ".part")).write_text("half")
    assert [found.step for found in steps(tmp_path) if found.problem is None] == [10]
    Folder(tmp_path, 1, 3)
    assert sorted(path.name[:9] for path in step_folder(tmp_path, 20).iterdir()) == ["rank-0000", "rank-0002"]
    ranks(tmp_path, 2)  # a smaller run's
    assert not step_folder(tmp_path, 20).exists()
    assert len(listing(tmp_path)) == 3


def test_a_folder_that_another_rank_deletes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ranks(tmp_path, 2)
    for step in (10, 20, 30):
        save(folders, step)
    looked = folder.steps

    def look(path: Path) -> Any:
        found = looked(path)
        shutil.rmtree(step_folder(tmp_path, 10), ignore_errors=True)
        return found

    monkeypatch.setattr(folder, "steps", look)
    for one in folders:
        one.prune()
    assert [found.step for found in steps(tmp_path)] == [30, 20]


def test_a_folder_that_vanishes_before_the_file_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, times = folder.write, []

    def vanishing(path: Path, *arguments: Any) -> None:
        times.append(path)
        if len(times) < 4:
            path.parent.rmdir()
        write(path, *arguments)

    monkeypatch.setattr(folder, "write", vanishing)
    save(ranks(tmp_path, 1), 10)
    assert len(times) == 4
    assert steps(tmp_path)[0].problem is None


@contextmanager
def no_file_longer_than(nbytes: int) -> Iterator[None]:
    """Let the system refuse to write more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_the_disk_refuses_is_raised_once_and_what_was_there_stays(tmp_path: Path) -> None:
    one = Folder(tmp_path, 0, 1)
    save([one], 10)
    for failing in (one.wait, lambda: one.save(30, {})):
        with no_file_longer_than(100_000):
            one.save(20, {"x": torch.zeros(100_000)})
            with pytest.raises(
                CheckpointError, match=r"rank-0000-of-0001\.safetensors: can't be written \(File too large\)"
            ):
                failing()
        one.wait()  # not again
    assert [(found.step, found.problem) for found in steps(tmp_path, full=True) if found.size] == [(10, None)]
    assert not list(tmp_path.rglob("*.part"))
    save([one], 20)
    assert steps(tmp_path)[0].problem is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission_to_write_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    one = Folder(tmp_path / "checkpoints", 0, 1)
    one.save(1, {})
    with pytest.raises(CheckpointError, match=r"can't be written .Permission denied"):
        one.wait()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    one = Folder(tmp_path / "checkpoints", 0, 1)
    one.save(1, {})
    with pytest.raises(CheckpointError, match=r"step-00000001/rank-0000-of-0001.*can't be written .Not a directory"):
        one.wait()


def test_a_link_in_place_of_a_step_s_folder_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").mkdir()
    step_folder(tmp_path / "checkpoints", 1).symlink_to(tmp_path / "elsewhere")
    one = Folder(tmp_path / "checkpoints", 0, 1)
    one.save(1, {})
    with pytest.raises(CheckpointError, match="step-00000001: is a symbolic link"):
        one.wait()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_can_t_be_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Folder(tmp_path, 0, 1, keep=1)
    save([one], 1)

    def fail(file: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(folder, "_delete", fail)
    one.save(2, {})
    with pytest.raises(CheckpointError, match=r"step-00000001/.*can't be deleted .Permission denied"):
        one.wait()


def test_what_can_t_be_saved_is_raised_at_once(tmp_path: Path) -> None:
    one = Folder(tmp_path, 0, 1)
    with pytest.raises(CheckpointError, match=r"state\['x'\] is a builtins.set"):
        one.save(1, {"x": {1}})
    with pytest.raises(CheckpointError, match="must be text by name"):
        one.save(1, {}, {"x": 1})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="step must be at least 0"):
        one.save(-1, {})
    one.wait()
    assert steps(tmp_path) == []


def test_a_mistake_of_the_program_is_raised_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "pack", lambda state: 1 / 0)
    one = Folder(tmp_path, 0, 1)
    one.save(1, {})
    with pytest.raises(ZeroDivisionError):
        one.wait()
    one.wait()


@pytest.mark.parametrize("rank, size, keep", [(-1, 2, 1), (2, 2, 1), (0, 0, 1), (0, 1, 0)])
def test_numbers_out_of_range_are_refused(tmp_path: Path, rank: int, size: int, keep: int) -> None:
    with pytest.raises(ValueError, match="wanted 0 <= rank < size and keep >= 1"):
        Folder(tmp_path, rank, size, keep)


def test_a_step_saved_again_replaces_the_file(tmp_path: Path) -> None:
    one = Folder(tmp_path, 0, 1)
    for value in (1, 2):
        one.save(5, {"x": value})
        one.wait()
    (found,) = steps(tmp_path)
    assert load(found, 0)[0] == {"x": 2}


def test_a_checkpoint_holds_a_state_with_something_of_each_kind(tmp_path: Path) -> None:
    save(ranks(tmp_path, 2), 3)
    assert same(load(steps(tmp_path)[0], 1)[0], plain_state(1, 3))
