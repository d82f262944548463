"""The 1797 handwritten digits of 8x8 pixels that scikit-learn ships: no download, trained in seconds."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import seeding
from ..errors import DataError
from .base import Dataset, Task

MEAN, STD = 4.88, 6.02
"""Of the pixels, whose values are 0 to 16."""


class Digits(Task):
    """Handwritten digits, 1x8x8, 10 classes: 1437 to train and 360 to test on, a fifth of each class, always the same.

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998), its test set.
    """

    name = "digits"
    default_model = "mlp"

    def read(self, folder: Path | None) -> Dataset:
        """Return the digits, x uint8 `[N, 1, 8, 8]`; `folder` isn't looked at. DataError without scikit-learn."""
        x, y = _table()
        order = seeding.generator(0, seeding.SHARED, "digits split").permutation(len(y))
        x, y = x[order], y[order]
        test = np.zeros(len(y), dtype=bool)
        test[np.argsort(y, kind="stable")[::5]] = True
        return Dataset(x[~test], y[~test], x[test], y[test], classes=10)

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return pixels of mean 0 and deviation 1: uint8 or float32 `[n, 1, 8, 8]` -> float32 `[n, 1, 8, 8]`."""
        return (x.to(torch.float32) - MEAN) / STD


def _table() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels `[1797, 1, 8, 8]` and labels `[1797]`, in the file's order."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError(
            "--task digits: its data come with scikit-learn, which isn't installed: pip install scikit-learn"
        )
    # The file itself: importing scikit-learn takes over a second, and every rank would wait for it.
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table: NDArray[Any] = np.loadtxt(path, delimiter=",", dtype=np.uint8) if path.is_file() else _ask_sklearn()
    return table[:, :64].reshape(-1, 1, 8, 8), table[:, 64].astype(np.int64)


def _ask_sklearn() -> NDArray[np.uint8]:
    """The same table, `uint8[1797, 65]`, wherever this version of scikit-learn keeps it."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return np.column_stack([x, y]).astype(np.uint8)
