"""What is listed of a folder of checkpoints, and why some can't be used."""

import os
import shutil
from pathlib import Path

import pytest
from saved_states import plain_state, same

from mpisign.checkpoints import Folder, Found, load, steps
from mpisign.checkpoints.names import file_name, step_folder
from mpisign.errors import CheckpointError


def save(path: Path, step: int, size: int = 3, run: str = "a", ranks: range | None = None) -> None:
    """Save what ranks save at a step."""
    for rank in ranks or range(size):
        folder = Folder(path, rank, size, keep=99, run=run)
        folder.save(step, plain_state(rank, step), {"rank": str(rank)})
        folder.wait()


def file(path: Path, step: int, rank: int, size: int = 3) -> Path:
    return step_folder(path, step) / file_name(rank, size)


def problem(path: Path) -> str:
    """The problem of the only checkpoint, as it is found from headers alone and by all checksums."""
    (found,), (again,) = steps(path), steps(path, full=True)
    assert found == again
    return str(found.problem)


def test_checkpoints_are_listed_newest_first_and_load_rank_by_rank(tmp_path: Path) -> None:
    for step in (120, 40, 100_000_000_000):
        save(tmp_path, step)
    found = steps(tmp_path, full=True)
    assert [(one.step, one.size, one.problem, one.run) for one in found] == [
        (step, 3, None, "a") for step in (100_000_000_000, 120, 40)
    ]
    assert [one.folder.name for one in found] == ["step-100000000000", "step-00000120", "step-00000040"]
    for one in found:
        for rank in range(3):
            state, details = load(one, rank)
            assert same(state, plain_state(rank, one.step))
            assert details == {"rank": str(rank)}


def test_where_nothing_was_saved_nothing_is_listed(tmp_path: Path) -> None:
    assert steps(tmp_path) == steps(tmp_path / "none") == []


def test_what_is_no_folder_of_checkpoints_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file: can't be listed \(Not a directory\)"):
        steps(tmp_path / "file")


def test_other_names_are_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 5)
    for name in ("step-5", "step-0000000000005", "step-00000009.tar", "notes", "step-٠٠٠٠٠٠٠١"):
        (tmp_path / name).mkdir()
    for name in (
        "rank-3-of-3.safetensors",
        "rank-0007-of-0003.safetensors",
        "rank-00000-of-0003.safetensors",
        ".nfs01",
    ):
        (step_folder(tmp_path, 5) / name).write_text("")
    assert [(found.step, found.size, found.problem) for found in steps(tmp_path, full=True)] == [(5, 3, None)]


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    save(tmp_path, 5, 4)
    file(tmp_path, 5, 2, 4).unlink()
    assert problem(tmp_path) == f"{step_folder(tmp_path, 5)}: 3 of 4 files are there, missing is rank 2"


def test_of_very_many_missing_ranks_some_are_named(tmp_path: Path) -> None:
    save(tmp_path, 5, 999_999_999, ranks=range(1, 2))
    assert problem(tmp_path).endswith("1 of 999999999 files are there, missing is rank 0, 2, 3, 4, …")


def test_a_checkpoint_of_which_nothing_was_finished_is_named(tmp_path: Path) -> None:
    step_folder(tmp_path, 5).mkdir()
    (step_folder(tmp_path, 5) / (file_name(1, 3) + ".part")).write_text("half")
    assert problem(tmp_path).endswith("no rank's file is there, and 1 half-written")


def test_damaged_bytes_are_named_with_their_file(tmp_path: Path) -> None:
    save(tmp_path, 5)
    content = bytearray(file(tmp_path, 5, 2).read_bytes())
    content[-1] ^= 1
    file(tmp_path, 5, 2).write_bytes(content)
    (found,) = steps(tmp_path, full=True)
    assert found.problem == f"{file(tmp_path, 5, 2)}: the checksum of its tensors is wrong: it is damaged"
    (found,) = steps(tmp_path)
    assert found.problem is None  # only headers were looked at
    assert same(load(found, 1)[0], plain_state(1, 5))
    with pytest.raises(CheckpointError, match=r"rank-0002-of-0003\.safetensors: the checksum of its tensors"):
        load(found, 2)
    content[300] ^= 1
    file(tmp_path, 5, 2).write_bytes(content)
    assert problem(tmp_path).endswith(
        "rank-0002-of-0003.safetensors: the checksum of its header is wrong: it is damaged"
    )


def test_of_many_problems_some_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    save(tmp_path, 5, 9)
    for rank in range(1, 9):
        os.truncate(file(tmp_path, 5, rank, 9), 9)
    file(tmp_path, 5, 0, 9).unlink()
    told = problem(tmp_path)
    assert told.count("cut off") == 3
    assert told.endswith("; and 5 more")


def test_files_that_changed_places_are_named_for_what_they_are(tmp_path: Path) -> None:
    save(tmp_path, 5)
    shutil.copyfile(file(tmp_path, 5, 0), file(tmp_path, 5, 1))
    assert (
        "rank-0001-of-0003.safetensors: holds rank 0 of 3 at step 5, where rank 1 of 3 at step 5 should be"
        in problem(tmp_path)
    )
    save(tmp_path, 5)
    save(tmp_path / "other", 6)
    shutil.copyfile(file(tmp_path / "other", 6, 1), file(tmp_path, 5, 1))
    assert "holds rank 1 of 3 at step 6, where rank 1 of 3 at step 5 should be" in problem(tmp_path)
    save(tmp_path / "other", 5, size=4)
    shutil.copyfile(file(tmp_path / "other", 5, 1, 4), file(tmp_path, 5, 1))
    assert "holds rank 1 of 4 at step 5, where rank 1 of 3 at step 5 should be" in problem(tmp_path)


def test_files_of_two_runs_in_one_checkpoint_are_named(tmp_path: Path) -> None:
    save(tmp_path, 5)
    save(tmp_path, 5, run="b", ranks=range(1, 2))
    assert problem(tmp_path).endswith(
        "files of different runs, rank 0, 2 of 'a'; rank 1 of 'b': some were swapped or written over"
    )


def test_a_file_that_is_swapped_after_the_look_is_named_by_load(tmp_path: Path) -> None:
    save(tmp_path, 5)
    (found,) = steps(tmp_path)
    for run, rank, words in (("b", 1, "is of run 'b', the others of 'a'"), ("a", 2, "holds rank 2 of 3")):
        save(tmp_path / run, 5, run=run)
        shutil.copyfile(file(tmp_path / run, 5, rank), file(tmp_path, 5, 1))
        with pytest.raises(CheckpointError, match=words):
            load(found, 1)
    file(tmp_path, 5, 1).unlink()
    with pytest.raises(CheckpointError, match=r"rank-0001-of-0003\.safetensors: is missing"):
        load(found, 1)


def test_what_can_t_be_used_is_not_loaded(tmp_path: Path) -> None:
    save(tmp_path, 5, ranks=range(2))
    (found,) = steps(tmp_path)
    with pytest.raises(CheckpointError, match=r"step 5 can't be used: .*missing is rank 2"):
        load(found, 0)
    for rank in (-1, 3):
        with pytest.raises(CheckpointError, match=f"holds ranks 0 to 2: there is no rank {rank} to load"):
            load(Found(5, 3, found.folder, None), rank)


def test_a_state_that_is_none_is_named_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpisign.checkpoints.folder.pack", lambda state: ({}, '{"mpisign":1,"state":[]}'))
    save(tmp_path, 5, 1)
    with pytest.raises(CheckpointError, match=r"rank-0000-of-0001\.safetensors: the state is none that mpisign packed"):
        load(steps(tmp_path)[0], 0)


def test_the_same_step_of_two_sizes_are_two_checkpoints_and_the_later_one_comes_first(tmp_path: Path) -> None:
    save(tmp_path, 5, size=3)
    save(tmp_path, 5, size=2, run="b")
    assert [(found.size, found.problem, found.run) for found in steps(tmp_path)] == [(2, None, "b"), (3, None, "a")]
    save(tmp_path, 5, size=3, run="c")
    assert [(found.size, found.problem, found.run) for found in steps(tmp_path)] == [(3, None, "c"), (2, None, "b")]
    assert same(load(steps(tmp_path)[1], 1)[0], plain_state(1, 5))
    file(tmp_path, 5, 2).unlink()
    assert [found.size for found in steps(tmp_path) if found.problem is None] == [2]


def test_links_files_and_pipes_in_place_of_folders_and_files_are_named(tmp_path: Path) -> None:
    save(tmp_path / "elsewhere", 5)
    path = tmp_path / "checkpoints"
    path.mkdir()
    step_folder(path, 5).symlink_to(step_folder(tmp_path / "elsewhere", 5))
    assert problem(path).endswith("step-00000005: is a symbolic link, wanted a folder")
    step_folder(path, 5).unlink()
    step_folder(path, 5).write_text("")
    assert problem(path).endswith("step-00000005: can't be listed (Not a directory)")
    step_folder(path, 5).unlink()
    save(path, 5)
    file(path, 5, 1).unlink()
    os.mkfifo(file(path, 5, 1))
    assert problem(path).endswith("rank-0001-of-0003.safetensors: is a pipe: wanted a regular file")
