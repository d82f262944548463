import dataclasses
import pickle
import sys

import pytest

from mpisign import registry
from mpisign.errors import ConfigError


def write(path, text):
    path.write_text(text)
    return path


def test_built_in_names_pass():
    for kind, things in registry.BUILT_IN.items():
        for name in things:
            registry.check(kind, name)


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_names():
    with pytest.raises(ConfigError) as caught:
        registry.check("algorithm", "signun")
    message = str(caught.value)
    assert message.startswith("--algorithm signun: no such algorithm (did you mean 'signum'?); known are ")
    assert "sgp, signsgd, signum" in message
    assert "file.py:attribute" in message
    assert "\n" not in message


def test_a_name_like_no_other_gets_no_hint():
    with pytest.raises(ConfigError, match="no such task; known are") as caught:
        registry.check("task", "zzz")
    assert "did you mean" not in str(caught.value)


def test_the_message_says_where_the_name_came_from():
    with pytest.raises(ConfigError, match=r"^run\.toml: task = 'x': no such task"):
        registry.check("task", "x", "run.toml: task = 'x'")


@pytest.mark.parametrize("name", ["my_module:Mine", "a.b.c:thing", "some/folder/my-file.py:Mine", "file.py:f"])
def test_references_to_things_outside_pass_unread(name):
    registry.check("algorithm", name)


@pytest.mark.parametrize("name", [":", "module:", ":Mine", "a b:Mine", "module:not an attribute", "a..b:c", ""])
def test_what_looks_like_no_reference_is_refused(name):
    with pytest.raises(ConfigError, match="no such algorithm"):
        registry.check("algorithm", name)


def test_a_thing_of_an_installed_module_is_loaded():
    assert registry.load("task", "dataclasses:dataclass") is dataclasses.dataclass


def test_a_thing_of_a_file_is_loaded_and_its_file_run_once(tmp_path):
    file = write(tmp_path / "mine.py", "class Mine: pass\n")
    loaded = registry.load("algorithm", f"{file}:Mine")
    assert loaded.__name__ == "Mine"
    assert registry.load("algorithm", f"{file}:Mine") is loaded


def test_a_file_shadows_no_installed_module(tmp_path):
    path_before = list(sys.path)
    file = write(tmp_path / "json.py", "mark = 'not the real json'\n")
    assert registry.load("task", f"{file}:mark") == "not the real json"
    import json

    assert json.loads("[1]") == [1]
    assert sys.path == path_before


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "mine.py", f"here = {folder!r}\n")
    assert [registry.load("task", f"{tmp_path}/{folder}/mine.py:here") for folder in "ab"] == ["a", "b"]


def test_a_class_of_a_file_can_be_pickled(tmp_path):
    file = write(tmp_path / "mine.py", "import dataclasses\n@dataclasses.dataclass\nclass Mine:\n    x: int = 3\n")
    Mine = registry.load("algorithm", f"{file}:Mine")
    assert pickle.loads(pickle.dumps(Mine(4))) == Mine(4)


def test_a_file_of_the_current_folder_is_found_by_its_module_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    write(tmp_path / "only_here_4711.py", "Mine = 5\n")
    assert registry.load("task", "only_here_4711:Mine") == 5


def test_an_installed_module_wins_over_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "dataclasses.py", "dataclass = 'shadow'\n")
    assert registry.load("task", "dataclasses:dataclass") is dataclasses.dataclass


@pytest.mark.parametrize("name", ["no_such_module_4711:Mine", "no_such_folder/file.py:Mine"])
def test_a_missing_module_or_file_is_named(name):
    with pytest.raises(ConfigError, match=f"--algorithm {name}: can't import {name.rpartition(':')[0]}"):
        registry.load("algorithm", name)


def test_a_missing_attribute_is_answered_with_the_nearest_one(tmp_path):
    file = write(tmp_path / "mine.py", "Mine = 1\n")
    with pytest.raises(ConfigError, match=r"mine\.py has no Minee \(did you mean 'Mine'\?\)"):
        registry.load("algorithm", f"{file}:Minee")


def test_a_file_that_lacks_a_package_says_which(tmp_path):
    file = write(tmp_path / "mine.py", "import no_such_module_4711\n")
    with pytest.raises(ConfigError, match=r"can't import .*No module named 'no_such_module_4711'"):
        registry.load("algorithm", f"{file}:Mine")


def test_a_fault_inside_the_users_file_keeps_its_traceback_and_leaves_nothing_behind(tmp_path):
    before = set(sys.modules)
    file = write(tmp_path / "mine.py", "1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            registry.load("algorithm", f"{file}:Mine")
    assert set(sys.modules) == before
