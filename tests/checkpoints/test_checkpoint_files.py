"""One file: others can open it, and whatever is done to it is named before it can do harm."""

import errno
import hashlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load_file
from saved_states import plain_state, raw, same

from mpisign.checkpoints import pack, reading, unpack, writing
from mpisign.checkpoints.reading import read, read_header, verify
from mpisign.checkpoints.safe_file import DTYPES, HEADER_AT, ZEROS, Label
from mpisign.checkpoints.writing import write
from mpisign.errors import CheckpointError

LABEL = Label("a run", 120, 3, 6, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint's file."""
    write(tmp_path / "rank-0003-of-0006.safetensors", LABEL, *pack(plain_state()), {"who": "me"})
    return tmp_path / "rank-0003-of-0006.safetensors"


def forged(path: Path, entries: dict[str, Any] | bytes, data: bytes = b"") -> Path:
    """Write a file with a right checksum of its header, whatever the header says."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries, separators=(",", ":")).encode()
    head = bytearray(text)
    digest = hashlib.blake2b(struct.pack("<Q", len(head)) + head, digest_size=16).hexdigest().encode()
    head[HEADER_AT : HEADER_AT + len(digest)] = digest
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return path


def entries(tensors: dict[str, Any], data: bytes = b"", **changed: Any) -> dict[str, Any]:
    """A header's JSON."""
    metadata = {"format": "mpisign checkpoint 1", "header": ZEROS.decode()}
    metadata |= {"data": hashlib.blake2b(data, digest_size=16).hexdigest()}
    metadata |= {"run": "", "step": "1", "rank": "0", "size": "1", "saved": "1", "details": "{}", "state": ""}
    return {"__metadata__": {**metadata, **changed}, **tensors}


def test_what_was_written_is_read(file: Path) -> None:
    for header in (read_header(file), verify(file), read(file)[0]):
        assert header.label == LABEL
        assert header.details == {"who": "me"}
    header, tensors = read(file)
    assert same(plain_state(), unpack(tensors, header.state))
    assert not list(file.parent.glob("*.part"))


def test_others_read_the_same_tensors_of_every_dtype(tmp_path: Path) -> None:
    path, chance = tmp_path / "file", torch.Generator().manual_seed(0)
    tensors = {}
    for name, dtype in DTYPES.items():
        flat = torch.empty(6 * dtype.itemsize, dtype=torch.uint8)
        tensors[name] = flat.random_(2 if dtype == torch.bool else 256, generator=chance).view(dtype).view(2, 3)
        tensors[f"{name} 0-dim"], tensors[f"{name} empty"] = tensors[name][0, 0], tensors[name][:0]
    write(path, LABEL, tensors, "state", {})
    for theirs in (load_file(path), read(path)[1]):
        assert theirs.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert same(tensor, theirs[name]), name
    with safetensors.safe_open(path, "pt") as opened:
        assert {"run": "a run", "step": "120", "rank": "3", "size": "6"}.items() <= opened.metadata().items()


def test_every_byte_is_covered_whichever_of_its_bits_is_flipped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, LABEL, {"x": torch.arange(5.0), "y": torch.arange(3, dtype=torch.int8)}, '{"a":1}', {"b": "c"})
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        for function in (verify, read):
            with pytest.raises(CheckpointError, match="file: "):
                function(path)
    path.write_bytes(content)
    assert verify(path)


def test_every_length_but_the_right_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, LABEL, {"x": torch.arange(5.0)}, '{"a":1}', {})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"cut off|it is damaged, or from another program"):
            read_header(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(CheckpointError, match="extended"):
        read_header(path)


def test_a_file_that_others_wrote_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.zeros(1000)}, path)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: .* from another program"):
        read_header(path)
    safetensors.torch.save_file({"x" * 200: torch.zeros(1000)}, path)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: starts otherwise .* from another program"):
        read_header(path)
    path.write_bytes(b"PK\3\4" * 1000)  # as torch.save writes
    with pytest.raises(CheckpointError, match=r"of 4000 in all.* from another program"):
        read_header(path)


def test_a_header_said_to_be_huge_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    made = []
    monkeypatch.setattr(reading, "bytearray", lambda n: made.append(n) or bytearray(n), raising=False)
    for length in (2**63 - 1, 2**64 - 1, 10**15, 10**8 + 8, 400):
        path.write_bytes(struct.pack("<Q", length) + bytes(300))
        with pytest.raises(CheckpointError, match=f"header has {length} bytes, of 308 in all"):
            read_header(path)
    assert made == [8] * 5


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "tensors, data",
    [
        ({"x": {**F32, "shape": [2**50], "data_offsets": [0, 2**52]}}, bytes(8)),
        ({"x": {**F32, "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}}, b""),
        ({"x": {**F32, "shape": [2**63], "data_offsets": [0, 2**65]}}, b""),
        ({"x": {**F32, "shape": [-2], "data_offsets": [0, -8]}}, b""),
        ({"x": {**F32, "shape": [True, 2]}}, bytes(8)),
        ({"x": {**F32, "shape": [2.0]}}, bytes(8)),
        ({"x": {**F32, "shape": [1] * 100 + [2]}}, bytes(8)),
        ({"x": {**F32, "shape": 2}}, bytes(8)),
        ({"x": {**F32, "shape": {"a": 2}}}, bytes(8)),
        ({"x": {**F32, "dtype": "F8_E8M0"}}, bytes(8)),
        ({"x": {**F32, "dtype": ["F32"]}}, bytes(8)),
        ({"x": {**F32, "data_offsets": [0, 8, 16]}}, bytes(8)),
        ({"x": {**F32, "data_offsets": [8, 16]}}, bytes(16)),  # a hole
        ({"x": F32, "y": F32}, bytes(8)),  # one upon the other
        ({"x": F32}, bytes(16)),  # something behind it
        ({"x": F32, "y" * 5000: "z"}, bytes(8)),
        ({"x": []}, bytes(8)),
        ({"x": None}, bytes(8)),
        ({"x": {}}, bytes(8)),
    ],
)
def test_a_forged_header_is_named_before_anything_is_made_of_it(tmp_path: Path, tensors: Any, data: bytes) -> None:
    path = forged(tmp_path / "file", entries(tensors, data), data)
    with pytest.raises(CheckpointError, match=r"file: (its header is none|has \d+ bytes where|no tensor)") as caught:
        read(path)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "changed",
    [
        {"step": "x"}, {"step": "1" * 5000}, {"rank": None}, {"size": []}, {"run": 3}, {"state": None}, {"state": {}},
        {"details": "["}, {"details": "[" * 100_000}, {"details": "[]"}, {"details": "3"}, {"details": '{"a":1}'}, {"saved": ""},
    ],
    ids=lambda changed: str(changed)[:40],
)  # fmt: skip
def test_forged_metadata_are_named(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="its header is none of a checkpoint"):
        read_header(forged(tmp_path / "file", entries({}, **changed)))


def test_a_forged_header_may_be_no_json_at_all(tmp_path: Path) -> None:
    good = json.dumps(entries({"x": F32}), separators=(",", ":")).encode()
    for text in (good[:-1], good[:-9], good.replace(b'"x"', b"\xff\xfe"), good.replace(b"[0,8]", b"[" * 50_000)):
        with pytest.raises(CheckpointError, match="its header is none of a checkpoint"):
            read_header(forged(tmp_path / "file", text, bytes(8)))
    assert read(forged(tmp_path / "file", entries({"x": F32}, bytes(8)), bytes(8)))  # forged well, it is read


def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(file: Path) -> None:
    place = file.with_name("other")
    place.symlink_to(file)
    with pytest.raises(CheckpointError, match="other: is a symbolic link: wanted a regular file"):
        read(place)
    place.unlink()
    place.symlink_to("nowhere")
    with pytest.raises(CheckpointError, match="symbolic link"):
        read(place)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(CheckpointError, match="is a pipe"):
        read(place)
    place.unlink()
    place.mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        read(place)
    place.rmdir()
    with pytest.raises(CheckpointError, match="other: is missing"):
        read(place)
    with pytest.raises(CheckpointError, match="is a device or socket"):
        read(Path("/dev/zero"))


def test_a_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("file")
        with pytest.raises(CheckpointError, match="is a device or socket"):
            read(Path("file"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(file: Path) -> None:
    file.chmod(0)
    with pytest.raises(CheckpointError, match=r"can't be read .Permission denied"):
        read(file)


def test_a_file_that_gets_shorter_while_it_is_read_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reading._header

    def header(path: Path, opened: Any) -> Any:
        found = whole(path, opened)
        os.truncate(path, file.stat().st_size - 9)
        return found

    monkeypatch.setattr(reading, "_header", header)
    with pytest.raises(CheckpointError, match="cut off while it was read"):
        read(file)


def test_a_header_longer_than_others_read_is_refused_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LARGEST_HEADER", 2000)
    with pytest.raises(CheckpointError, match="keep long lists and texts of the state as tensors"):
        write(tmp_path / "file", LABEL, {}, "x" * 3000, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = file.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="No space"):
        write(file, LABEL, {"x": torch.zeros(3)}, "", {})
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == before


def test_a_link_in_place_of_the_temporary_file_is_not_written_through(file: Path) -> None:
    victim = file.with_name("victim")
    victim.write_text("precious")
    file.with_name(file.name + ".part").symlink_to(victim)
    write(file, LABEL, {"x": torch.zeros(3)}, "", {})
    assert victim.read_text() == "precious"
    assert raw(read(file)[1]["x"]) == bytes(12)
