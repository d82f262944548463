"""MNIST, Fashion-MNIST and CIFAR-10, read from the files people have; nothing is downloaded.

A folder may hold an `.npz` of four arrays (as Keras' mnist.npz) or what torchvision or the data's authors lay down: idx
files, CIFAR-10's Python batches or its binary ones. All are read without running code from them.
"""

import gzip
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import DataError
from .base import Dataset, Task

Pixels = NDArray[np.uint8]
Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""x_train, y_train, x_test, y_test as they lie in a file."""

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class Images(Task):
    """Ten classes of small images; each subclass says which and where they lie.

    `shape`: channels, height, width; `mean`, `std`: of the training pixels per channel, in 0..1; `source`: its name
    in torchvision; `layouts`: folders, each with its reader.
    """

    default_model = "mlp"
    source: str
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layouts: tuple[tuple[str, Callable[[Path], Arrays]], ...]

    def __init__(self) -> None:
        self._mean = 255 * torch.tensor(self.mean).view(-1, 1, 1)
        self._std = 255 * torch.tensor(self.std).view(-1, 1, 1)

    def read(self, folder: Path | None) -> Dataset:
        """Return the images, x uint8 `[N, channels, height, width]`, from an `.npz` file or a folder with known names.

        Raises DataError: no folder, nothing known in it (with what was looked for and how to get it), a damaged file.
        """
        if folder is None:
            raise DataError(f"--task {self.name} brings no data of its own. {self._advice('DIR')}")
        path, reader = self._find(folder)
        x_train, y_train, x_test, y_test = reader(path)
        try:
            return Dataset(
                self._pixels("x_train", x_train),
                _labels("y_train", y_train),
                self._pixels("x_test", x_test),
                _labels("y_test", y_test),
                classes=10,
            )
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return pixels of mean 0 and deviation 1 per channel: `[n, c, h, w]` in 0..255 -> float32 `[n, c, h, w]`."""
        return (x.to(torch.float32) - self._mean.to(x.device)) / self._std.to(x.device)

    def _find(self, folder: Path) -> tuple[Path, Callable[[Path], Arrays]]:
        """The file or folder to read, and its reader."""
        if folder.is_file():
            return folder, _read_npz
        named = folder / f"{self.name}.npz"
        archives = [named] if named.is_file() else sorted(folder.glob(f"{self.name}*.npz"))
        if len(archives) > 1:
            names = ", ".join(path.name for path in archives)
            raise DataError(f"--data {folder} holds {names}: name the one to read, as in --data {archives[0]}")
        if archives:
            return archives[0], _read_npz
        for name, reader in self.layouts:
            if (folder / name).is_dir():
                return folder / name, reader
        missing = "" if folder.is_dir() else ", which doesn't exist"
        raise DataError(f"--task {self.name}: no data in {folder}{missing}. {self._advice(str(folder))}")

    def _advice(self, folder: str) -> str:
        places = ", ".join([f"{folder}/{self.name}.npz", *(f"{folder}/{name}/" for name, _ in self.layouts)])
        return (
            f"Looked for are {places}. Give --data DIR with one of them, or --data FILE.npz with uint8 arrays x_train "
            f"[N, {', '.join(map(str, self._seen()))}], y_train [N], x_test, y_test. To get the data: "
            f"python -c \"import torchvision; torchvision.datasets.{self.source}('{folder}', download=True)\""
        )

    def _seen(self) -> tuple[int, ...]:
        """Shape of an image in an `.npz`: 28x28 or 32x32x3."""
        channels, height, width = self.shape
        return (height, width) if channels == 1 else (height, width, channels)

    def _pixels(self, name: str, x: NDArray[Any]) -> Pixels:
        """`[N, h, w]`, `[N, h, w, c]` or `[N, c, h, w]` -> `[N, c, h, w]`, contiguous."""
        channels, height, width = self.shape
        form = x.shape[1:]
        if x.dtype != np.uint8 or form not in {self._seen(), (height, width, channels), self.shape}:
            raise DataError(f"{name} is {x.dtype}{list(x.shape)}: wanted uint8 {['N', *self._seen()]}")
        if form == self.shape:
            return np.ascontiguousarray(x)
        return np.ascontiguousarray(np.moveaxis(x.reshape(-1, height, width, channels), 3, 1))


def _labels(name: str, y: NDArray[Any]) -> NDArray[np.int64]:
    """`[N]` or `[N, 1]` integers -> int64 `[N]`."""
    if y.dtype.kind not in "iu" or y.shape not in {y.shape[:1], (*y.shape[:1], 1)}:
        raise DataError(f"{name} is {y.dtype}{list(y.shape)}: wanted integers ['N']")
    return y.reshape(-1).astype(np.int64)


def _read_npz(path: Path) -> Arrays:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            x_train, y_train, x_test, y_test = (archive[name] for name in ARRAYS)
    except Exception as error:  # a damaged archive can raise almost anything
        raise DataError(f"{path}: can't read {', '.join(ARRAYS)} from it as an .npz ({_words(error)})") from error
    return x_train, y_train, x_test, y_test


def _read_idx(folder: Path) -> Arrays:
    return (
        _idx(folder, "train-images-idx3-ubyte", 3),
        _idx(folder, "train-labels-idx1-ubyte", 1),
        _idx(folder, "t10k-images-idx3-ubyte", 3),
        _idx(folder, "t10k-labels-idx1-ubyte", 1),
    )


def _idx(folder: Path, name: str, dimensions: int) -> Pixels:
    """One idx file: 0, 0, 8 (uint8), number of dimensions, their sizes as big-endian uint32, and the bytes."""
    packed = folder / f"{name}.gz"
    path = packed if packed.is_file() and not (folder / name).is_file() else folder / name
    content = _content(path)
    start = 4 + 4 * dimensions
    if content[:4].tolist() != [0, 0, 8, dimensions] or len(content) < start:
        raise DataError(f"{path}: starts with {content[:4].tolist()}, wanted an idx file's [0, 0, 8, {dimensions}]")
    shape = content[4:start].view(">u4").tolist()
    wanted = int(np.prod(shape, dtype=object))  # python's integers: damaged sizes can't overflow
    if len(content) - start != wanted:
        raise DataError(f"{path}: {len(content) - start} bytes after the header, which says {shape} = {wanted}")
    return content[start:].reshape(shape)


def _content(path: Path) -> Pixels:
    """The bytes of a file, unpacked where its name ends in .gz."""
    try:
        if path.suffix == ".gz":
            return np.frombuffer(bytearray(gzip.decompress(path.read_bytes())), dtype=np.uint8)
        return np.fromfile(path, dtype=np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: can't be read ({_words(error)})") from error


def _read_batches(folder: Path, batch: Callable[[Path], tuple[Pixels, NDArray[Any]]], suffix: str) -> Arrays:
    """CIFAR-10's five training batches and its test batch."""
    x, y = zip(*(batch(folder / f"data_batch_{number}{suffix}") for number in range(1, 6)), strict=True)
    x_test, y_test = batch(folder / f"test_batch{suffix}")
    return np.concatenate(x), np.concatenate(y), x_test, y_test


def _read_binary(folder: Path) -> Arrays:
    return _read_batches(folder, _binary, ".bin")


def _binary(path: Path) -> tuple[Pixels, Pixels]:
    """One label and 3x32x32 pixels a record."""
    content = _content(path)
    if len(content) == 0 or len(content) % 3073:
        raise DataError(f"{path}: {len(content)} bytes, wanted a multiple of 3073 (a label and 3x32x32 pixels)")
    records = content.reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _read_pickles(folder: Path) -> Arrays:
    return _read_batches(folder, _pickle, "")


def _pickle(path: Path) -> tuple[Pixels, NDArray[Any]]:
    """One Python batch: a dict with `data`, uint8 `[N, 3072]`, and `labels`, a list of integers."""
    try:
        with path.open("rb") as file:
            batch = {_text(key): value for key, value in _Unpickler(file, encoding="bytes").load().items()}
        labels = np.array(batch["labels"])
        return batch["data"].array().reshape(len(labels), 3, 32, 32), labels
    except Exception as error:  # a damaged pickle can raise almost anything
        raise DataError(f"{path}: can't read a CIFAR-10 batch from it ({_words(error)})") from error


class _Unpickler(pickle.Unpickler):
    """Reads plain values and uint8 arrays; every other thing that a pickle may call is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for NumPy's array and dtype, so that nothing of a file's choosing is called."""
        if module.partition(".")[0] == "numpy" and name in {"_reconstruct", "ndarray"}:
            return _Array
        if module == "numpy" and name == "dtype":
            return _Dtype
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a batch of images doesn't need")


class _Dtype:
    """What a pickle says of an array's dtype."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = _text(code)

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: no matter for uint8."""


class _Array:
    """What a pickle says of an array: shape, dtype and bytes."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> Pixels:
        """Return the uint8 array, or raise ValueError."""
        _, shape, dtype, fortran, content = self.state
        if dtype.code != "u1" or fortran:
            raise ValueError(f"array of dtype {dtype.code}, Fortran order {bool(fortran)}: wanted uint8 in C order")
        return np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)


def _text(word: str | bytes) -> str:
    return word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class MNIST(Images):
    """Handwritten digits, 1x28x28; 60,000 and 10,000. Source: LeCun, Cortes, Burges."""

    name = "mnist"
    source = "MNIST"
    shape = (1, 28, 28)
    mean, std = (0.1307,), (0.3081,)
    layouts = (("MNIST/raw", _read_idx),)


class FashionMNIST(Images):
    """Pieces of clothing, 1x28x28; 60,000 and 10,000. Source: Xiao, Rasul, Vollgraf (2017)."""

    name = "fashion_mnist"
    source = "FashionMNIST"
    shape = (1, 28, 28)
    mean, std = (0.2860,), (0.3530,)
    layouts = (("FashionMNIST/raw", _read_idx),)


class CIFAR10(Images):
    """Photographs of animals and vehicles, 3x32x32; 50,000 and 10,000. Source: Krizhevsky (2009)."""

    name = "cifar10"
    default_model = "lenet"
    source = "CIFAR10"
    shape = (3, 32, 32)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    layouts = (("cifar-10-batches-py", _read_pickles), ("cifar-10-batches-bin", _read_binary))
