"""A task: data, how a batch of it enters a model, and how a model is judged."""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from ..errors import DataError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled inputs to train and to test on, as they lie in the files.

    `x_train`, `x_test`: uint8 or float32 `[N, *shape]`, of one dtype and shape. `y_train`, `y_test`: int64 `[N]` in
    0..classes−1. Nothing is empty. Raises DataError otherwise.
    """

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    classes: int

    def __post_init__(self) -> None:
        if self.x_train.dtype != self.x_test.dtype or self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise DataError(f"x_train is {_form(self.x_train)} and x_test is {_form(self.x_test)}: wanted inputs alike")
        _check("train", self.x_train, self.y_train, self.classes)
        _check("test", self.x_test, self.y_test, self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input, as models are built for it."""
        return tuple(self.x_train.shape[1:])


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _check(part: str, x: NDArray[Any], y: NDArray[Any], classes: int) -> None:
    if x.dtype not in (np.uint8, np.float32) or x.ndim < 2:
        raise DataError(f"x_{part} is {_form(x)}: wanted uint8 or float32 [N, *shape]")
    if y.dtype != np.int64 or y.ndim != 1:
        raise DataError(f"y_{part} is {_form(y)}: wanted int64 [N]")
    if len(x) != len(y):
        raise DataError(f"x_{part} has {len(x)} inputs and y_{part} has {len(y)} labels: wanted as many")
    if x.size == 0:
        raise DataError(f"x_{part} is {_form(x)}: wanted at least one input and none of size 0")
    if y.min() < 0 or y.max() >= classes:
        raise DataError(f"y_{part} has labels from {y.min()} to {y.max()}: wanted 0 to {classes - 1}")


class Task(abc.ABC):
    """What is learned: subclasses name the data and how a batch of it enters a model.

    `name` is the task's name on the command line, `default_model` that of the model it trains where none is given.
    """

    name: str
    default_model: str

    @abc.abstractmethod
    def read(self, folder: Path | None) -> Dataset:
        """Return the data, read from `folder` (`--data`) or, where the task brings its own, from nowhere.

        Only rank 0 calls it. Raises DataError where the data are missing or damaged.
        """

    @abc.abstractmethod
    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return a batch as models want it: uint8 or float32 `[n, *shape]` -> normalised float32 `[n, *shape]`.

        The result is new memory on the batch's device; `x` stays as it is.
        """

    def loss(self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of the model on a batch, float32 [] with its graph.

        `x`: a raw batch, as `inputs` takes it; `y`: int64 `[n]`, n >= 1; both on the model's device.
        """
        return cross_entropy(model(self.inputs(x)), y)

    def evaluate(
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, batch_size: int = 1000
    ) -> tuple[float, int]:
        """Return (sum of the cross-entropies, number of correct answers) over raw inputs `x` and labels `y`.

        `x`: `[n, *shape]`, `y`: int64 `[n]`, both on the model's device; n may be 0. Sums, so that ranks can add up
        theirs. The model answers in evaluation mode without a graph; each module's mode is restored after it.
        """
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            return self._judge(model, x, y, batch_size)
        finally:
            for module, training in modes:
                module.training = training

    @torch.no_grad()
    def _judge(self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, batch_size: int) -> tuple[float, int]:
        loss, correct = 0.0, 0
        for start in range(0, len(x), batch_size):
            labels = y[start : start + batch_size]
            logits = model(self.inputs(x[start : start + batch_size]))  # [n, classes]
            loss += cross_entropy(logits, labels, reduction="sum").item()
            correct += int((logits.argmax(1) == labels).sum().item())
        return loss, correct
