import gzip
import pickle
import struct

import numpy as np
import pytest
import torch

from mpisign.errors import DataError
from mpisign.tasks.images import CIFAR10, MNIST, FashionMNIST

GRAY = {"x_train": (12, 28, 28), "x_test": (5, 28, 28)}
COLOR = {"x_train": (10, 32, 32, 3), "x_test": (2, 32, 32, 3)}


def arrays(shapes=GRAY, seed=0):
    """Images and labels as an .npz has them."""
    random = np.random.default_rng(seed)
    x_train, x_test = (random.integers(0, 256, shapes[name], dtype=np.uint8) for name in ("x_train", "x_test"))
    y_train, y_test = (random.integers(0, 10, len(x), dtype=np.uint8) for x in (x_train, x_test))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def write_idx(folder, content, packed=False):
    folder.mkdir(parents=True)
    names = {
        "train-images-idx3-ubyte": content["x_train"],
        "train-labels-idx1-ubyte": content["y_train"],
        "t10k-images-idx3-ubyte": content["x_test"],
        "t10k-labels-idx1-ubyte": content["y_test"],
    }
    for name, array in names.items():
        written = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(written) if packed else written)


def batches(content):
    """CIFAR-10's batches: name -> pixels `[n, 3072]`, channels first, and labels."""
    flat = {part: np.moveaxis(content[f"x_{part}"], 3, 1).reshape(-1, 3072) for part in ("train", "test")}
    pieces = zip(np.array_split(flat["train"], 5), np.array_split(content["y_train"], 5), strict=True)
    named = {f"data_batch_{number}": piece for number, piece in enumerate(pieces, 1)}
    return named | {"test_batch": (flat["test"], content["y_test"])}


def write_pickles(folder, content, dump):
    folder.mkdir(parents=True)
    for name, (pixels, labels) in batches(content).items():
        (folder / name).write_bytes(dump(pixels, labels))


def by_python_3(pixels, labels):
    return pickle.dumps({"data": pixels, "labels": labels.tolist(), "batch_label": "one of 5"}, protocol=4)


def by_python_2(pixels, labels):
    """A batch as the authors' file has it: protocol 2, byte strings, an array of the old numpy.core."""
    raw = pixels.tobytes()
    return b"".join(
        [
            b"\x80\x02}(",  # a dict, and a mark
            b"U\x04data",
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR",
            b"(K\x01J" + struct.pack("<i", pixels.shape[0]) + b"J" + struct.pack("<i", pixels.shape[1]) + b"\x86",
            b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb",
            b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in labels.tolist()) + b"e",
            b"u.",
        ]
    )


def write_binaries(folder, content):
    folder.mkdir(parents=True)
    for name, (pixels, labels) in batches(content).items():
        (folder / f"{name}.bin").write_bytes(np.column_stack([labels, pixels]).tobytes())


def assert_holds(dataset, content):
    """The data set is the content, channels first and with int64 labels."""
    for part in ("train", "test"):
        x, y = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        wanted = content[f"x_{part}"]
        wanted = wanted[:, None] if wanted.ndim == 3 else np.moveaxis(wanted, 3, 1)
        assert np.array_equal(x, wanted)
        assert np.array_equal(y, content[f"y_{part}"])
        assert x.dtype == np.uint8
        assert x.flags.c_contiguous
        assert x.flags.writeable  # torch.from_numpy warns of others


@pytest.mark.parametrize("task, shapes", [(MNIST, GRAY), (FashionMNIST, GRAY), (CIFAR10, COLOR)])
def test_an_npz_is_read_by_its_path_and_from_its_folder(task, shapes, tmp_path):
    content = arrays(shapes)
    np.savez(tmp_path / f"{task.name}.npz", **content)
    assert_holds(task().read(tmp_path / f"{task.name}.npz"), content)
    assert_holds(task().read(tmp_path), content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("task, folder", [(MNIST, "MNIST/raw"), (FashionMNIST, "FashionMNIST/raw")])
def test_idx_files_are_read_as_torchvision_lays_them_down(task, folder, packed, tmp_path):
    write_idx(tmp_path / folder, arrays(), packed)
    assert_holds(task().read(tmp_path), arrays())


@pytest.mark.parametrize("dump", [by_python_2, by_python_3])
def test_python_batches_of_cifar_are_read(dump, tmp_path):
    write_pickles(tmp_path / "cifar-10-batches-py", arrays(COLOR), dump)
    assert_holds(CIFAR10().read(tmp_path), arrays(COLOR))


def test_the_python_2_batch_of_these_tests_is_what_pickle_itself_reads():
    pixels, labels = batches(arrays(COLOR))["test_batch"]
    batch = pickle.loads(by_python_2(pixels, labels), encoding="bytes")
    assert np.array_equal(batch[b"data"], pixels)
    assert batch[b"labels"] == labels.tolist()


def test_binary_batches_of_cifar_are_read(tmp_path):
    write_binaries(tmp_path / "cifar-10-batches-bin", arrays(COLOR))
    assert_holds(CIFAR10().read(tmp_path), arrays(COLOR))


def test_labels_in_a_column_and_channels_in_any_place_are_understood(tmp_path):
    content = arrays(COLOR)
    changed = {name: np.moveaxis(array, 3, 1) if array.ndim == 4 else array[:, None] for name, array in content.items()}
    np.savez(tmp_path / "cifar10.npz", **changed)
    assert_holds(CIFAR10().read(tmp_path), content)


def test_an_archive_that_has_the_tasks_name_goes_before_others(tmp_path):
    np.savez(tmp_path / "cifar10.npz", **arrays(COLOR, seed=1))
    np.savez(tmp_path / "cifar10_small.npz", **arrays(COLOR, seed=2))
    assert_holds(CIFAR10().read(tmp_path), arrays(COLOR, seed=1))


def test_a_single_archive_with_a_longer_name_is_taken_and_of_two_one_must_be_named(tmp_path):
    np.savez(tmp_path / "cifar10_small.npz", **arrays(COLOR))
    assert_holds(CIFAR10().read(tmp_path), arrays(COLOR))
    np.savez(tmp_path / "cifar10_tiny.npz", **arrays(COLOR))
    with pytest.raises(DataError, match=r"holds cifar10_small.npz, cifar10_tiny.npz: name the one to read"):
        CIFAR10().read(tmp_path)


@pytest.mark.parametrize("task", [MNIST, FashionMNIST, CIFAR10])
def test_without_data_the_error_says_where_it_looked_and_how_to_get_them(task, tmp_path):
    with pytest.raises(DataError) as nothing:
        task().read(None)
    assert "--data DIR" in str(nothing.value)
    assert f"torchvision.datasets.{task.source}('DIR', download=True)" in str(nothing.value)
    for folder, words in ((tmp_path, f"no data in {tmp_path}. "), (tmp_path / "gone", "gone, which doesn't exist. ")):
        with pytest.raises(DataError) as missing:
            task().read(folder)
        assert words in str(missing.value)
        assert f"{folder}/{task.name}.npz" in str(missing.value)
        assert all(f"{folder}/{name}/" in str(missing.value) for name, _ in task.layouts)


@pytest.mark.parametrize(
    "name, damage, words",
    [
        ("train-images-idx3-ubyte", lambda content: content[:-1], "9407 bytes after the header, .* = 9408"),
        ("train-images-idx3-ubyte", lambda content: content + b"\0", "9409 bytes after the header"),
        ("t10k-labels-idx1-ubyte", lambda content: b"\0\0\x08\x03" + content[4:], "wanted an idx file's"),
        ("t10k-images-idx3-ubyte", lambda content: b"<html>not found</html>", "wanted an idx file's"),
        ("t10k-images-idx3-ubyte", lambda content: content[:9], "wanted an idx file's"),
        ("t10k-images-idx3-ubyte", lambda content: content[:4] + b"\xff" * 12 + content[16:], "which says"),
        ("train-labels-idx1-ubyte", lambda content: b"", "wanted an idx file's"),
    ],
)
def test_a_damaged_idx_file_is_named(name, damage, words, tmp_path):
    write_idx(tmp_path / "MNIST/raw", arrays())
    path = tmp_path / "MNIST/raw" / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{name}: .*{words}"):
        MNIST().read(tmp_path)


@pytest.mark.parametrize("damage", [lambda content: content[:-20], lambda content: b"no gzip", lambda content: b""])
def test_a_damaged_gzip_file_is_named(damage, tmp_path):
    write_idx(tmp_path / "MNIST/raw", arrays(), packed=True)
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: "):
        MNIST().read(tmp_path)


@pytest.mark.parametrize(
    "write, name",
    [
        (lambda folder: write_idx(folder / "MNIST/raw", arrays()), "MNIST/raw/t10k-labels-idx1-ubyte"),
        (
            lambda folder: write_pickles(folder / "cifar-10-batches-py", arrays(COLOR), by_python_3),
            "cifar-10-batches-py/data_batch_3",
        ),
        (
            lambda folder: write_binaries(folder / "cifar-10-batches-bin", arrays(COLOR)),
            "cifar-10-batches-bin/test_batch.bin",
        ),
    ],
)
def test_a_file_missing_from_a_layout_is_named(write, name, tmp_path):
    write(tmp_path)
    (tmp_path / name).unlink()
    task = MNIST() if name.startswith("MNIST") else CIFAR10()
    with pytest.raises(DataError, match=f"{name}: .*No such file"):
        task.read(tmp_path)


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_a_binary_batch_of_a_wrong_size_is_named(size, tmp_path):
    write_binaries(tmp_path / "cifar-10-batches-bin", arrays(COLOR))
    (tmp_path / "cifar-10-batches-bin/data_batch_2.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=f"data_batch_2.bin: {size} bytes, wanted a multiple of 3073"):
        CIFAR10().read(tmp_path)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "EOFError"),
        (b"not a zip", "as an .npz"),
        (b"PK\x03\x04 not a zip", "BadZipFile"),
    ],
)
def test_a_file_that_is_no_npz_is_named(content, words, tmp_path):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(DataError, match=f"mnist.npz: .*{words}"):
        MNIST().read(tmp_path)


def test_a_truncated_npz_is_named(tmp_path):
    path = tmp_path / "mnist.npz"
    np.savez_compressed(path, **arrays())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"mnist\.npz: can't read x_train, y_train, x_test, y_test"):
        MNIST().read(tmp_path)


def test_an_npz_with_a_flipped_byte_anywhere_is_read_or_named(tmp_path):
    """Whatever numpy and zipfile raise on a damaged archive, the user sees one kind of error."""
    path = tmp_path / "mnist.npz"
    np.savez_compressed(path, **arrays({"x_train": (2, 28, 28), "x_test": (1, 28, 28)}))
    content = path.read_bytes()
    errors = []
    for position in np.random.default_rng(0).integers(0, len(content), 200):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            MNIST().read(path)
        except DataError as error:
            errors.append(str(error))
    assert len(errors) > 100
    assert all(str(path) in error for error in errors)


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"x_train": np.zeros((12, 28, 27), np.uint8)},
            r"x_train is uint8\[12, 28, 27\]: wanted uint8 \['N', 28, 28\]",
        ),
        ({"x_test": np.zeros((5, 28, 28), np.float32)}, r"x_test is float32\[5, 28, 28\]"),
        ({"y_train": np.zeros(12)}, r"y_train is float64\[12\]: wanted integers"),
        ({"y_train": np.zeros((12, 10), np.uint8)}, r"y_train is uint8\[12, 10\]"),
        ({"y_test": np.uint8(3)}, "x_test has 5 inputs and y_test has 1 labels"),
        ({"y_test": np.full(5, 10)}, "y_test has labels from 10 to 10: wanted 0 to 9"),
        ({"x_train": np.zeros((0, 28, 28), np.uint8), "y_train": np.zeros(0, np.uint8)}, "at least one input"),
        ({"x_train": np.array([None] * 12)}, "can't read x_train.*allow_pickle=False"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_the_files_name(changes, words, tmp_path):
    np.savez(tmp_path / "mnist.npz", **(arrays() | changes))
    with pytest.raises(DataError, match=f"mnist.npz: .*{words}"):
        MNIST().read(tmp_path)


def test_an_npz_without_one_of_the_arrays_is_refused(tmp_path):
    content = arrays()
    del content["y_test"]
    np.savez(tmp_path / "mnist.npz", **content)
    with pytest.raises(DataError, match=r"mnist.npz: .*y_test is not a file in the archive"):
        MNIST().read(tmp_path)


class Attack:
    """Unpickled without care, it calls `function` with `arguments`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def write_batch(folder, content):
    """A folder in which all batches are good but the first."""
    write_pickles(folder / "cifar-10-batches-py", arrays(COLOR), by_python_3)
    (folder / "cifar-10-batches-py/data_batch_1").write_bytes(content)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(protocol, tmp_path):
    mark = tmp_path / "mark"
    for attack in (Attack(mark.touch), Attack(eval, f"open({str(mark)!r}, 'w')"), Attack(np.save, str(mark), 1)):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        write_batch(folder, pickle.dumps({"data": attack, "labels": []}, protocol))
        with pytest.raises(DataError, match=r"data_batch_1: .*asks for .* which a batch of images doesn't need"):
            CIFAR10().read(folder)
    assert not list(tmp_path.glob("mark*"))


def test_even_numpys_own_functions_are_not_called_by_a_pickle(tmp_path):
    huge = Attack(np.ndarray, (2**40,), np.dtype("u1"))  # a terabyte, were it built
    write_batch(tmp_path, pickle.dumps({"data": huge, "labels": [0, 1]}))
    with pytest.raises(DataError, match="data_batch_1"):
        CIFAR10().read(tmp_path)


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    "batch, words",
    [
        ({"labels": [0, 1]}, "KeyError: 'data'"),
        ({"data": PIXELS}, "KeyError: 'labels'"),
        ({"data": PIXELS, "labels": [0]}, "cannot reshape"),
        ({"data": PIXELS[:, :-1].copy(), "labels": [0, 1]}, "cannot reshape"),
        ({"data": PIXELS.astype(np.float32), "labels": [0, 1]}, "dtype f4, .* wanted uint8"),
        ({"data": np.asfortranarray(PIXELS + 1), "labels": [0, 1]}, "Fortran order True"),
        ({"data": PIXELS.tolist(), "labels": [0, 1]}, "AttributeError"),
        ([PIXELS, [0, 1]], "AttributeError"),
    ],
)
def test_a_pickle_that_is_no_batch_is_named(batch, words, tmp_path):
    write_batch(tmp_path, pickle.dumps(batch, protocol=4))
    with pytest.raises(DataError, match=f"data_batch_1: can't read a CIFAR-10 batch from it .*{words}"):
        CIFAR10().read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a pickle", by_python_3(PIXELS, np.zeros(2, int))[:-300]])
def test_a_damaged_pickle_is_named(content, tmp_path):
    write_batch(tmp_path, content)
    with pytest.raises(DataError, match="data_batch_1: can't read"):
        CIFAR10().read(tmp_path)


def test_inputs_are_normalised_per_channel():
    x = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    x[:, 1] = 255
    inputs = CIFAR10().inputs(x)
    assert inputs.shape == x.shape
    assert inputs.dtype == torch.float32
    wanted = [-0.4914 / 0.2470, (1 - 0.4822) / 0.2435, -0.4465 / 0.2616]
    assert inputs[0, :, 5, 7].tolist() == pytest.approx(wanted, rel=1e-6)  # float32
    assert torch.equal(CIFAR10().inputs(x.to(torch.float32)), inputs)
    assert x.max() == 255  # the batch stays as it is


@pytest.mark.shared_data
@pytest.mark.parametrize("task, size", [(MNIST, 60_000), (FashionMNIST, 60_000)])
def test_the_real_images_have_mean_0_and_deviation_1(task, size, shared_data):
    data = task().read(shared_data)
    assert len(data.x_train) == size
    assert len(data.x_test) == 10_000
    inputs = task().inputs(torch.from_numpy(data.x_train[:20_000]))
    assert abs(inputs.mean().item()) < 0.01  # a third of the images
    assert abs(inputs.std().item() - 1) < 0.01


@pytest.mark.shared_data
def test_the_small_cifar_10_is_balanced(shared_data):
    data = CIFAR10().read(shared_data / "cifar10_small.npz")
    assert np.bincount(data.y_train).tolist() == [100] * 10
    assert data.shape == (3, 32, 32)
