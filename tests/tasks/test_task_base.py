from pathlib import Path

import numpy as np
import pytest
import torch

from mpisign.errors import DataError
from mpisign.tasks.base import Dataset, Task


def arrays(**changes):
    known = {
        "x_train": np.zeros((6, 1, 2, 2), np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.zeros((3, 1, 2, 2), np.uint8),
        "y_test": np.array([0, 1, 2]),
        "classes": 3,
    }
    return known | changes


class Pairs(Task):
    """Two numbers as input; they come doubled."""

    name = "pairs"
    default_model = "mlp"

    def read(self, folder: Path | None) -> Dataset:
        raise NotImplementedError

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float32) / 2


class Recorder(torch.nn.Module):
    """Gives its input back as logits and notes its mode, whether a graph is built, and the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, bool, int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((self.training, torch.is_grad_enabled(), len(x)))
        return x


def test_a_dataset_knows_the_shape_of_one_input():
    assert Dataset(**arrays()).shape == (1, 2, 2)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"y_train": np.array([0, 1])}, "x_train has 6 inputs and y_train has 2 labels"),
        ({"y_test": np.array([0, 1, 3])}, "y_test has labels from 0 to 3: wanted 0 to 2"),
        ({"y_train": np.array([0, 1, 2, 0, 1, -1])}, "labels from -1 to 2"),
        ({"y_train": np.zeros(6, np.uint8)}, r"y_train is uint8\[6\]: wanted int64"),
        ({"y_test": np.zeros((3, 1), np.int64)}, r"y_test is int64\[3, 1\]"),
        ({"x_test": np.zeros((3, 1, 2, 2), np.float32)}, "wanted inputs alike"),
        ({"x_test": np.zeros((3, 1, 2, 3), np.uint8)}, "wanted inputs alike"),
        ({"x_train": np.zeros((6, 4)), "x_test": np.zeros((3, 4))}, r"float64\[6, 4\]: wanted uint8 or float32"),
        ({"x_train": np.zeros(6, np.uint8), "x_test": np.zeros(3, np.uint8)}, r"wanted uint8 or float32 \[N, "),
        ({"x_test": np.zeros((0, 1, 2, 2), np.uint8), "y_test": np.zeros(0, np.int64)}, "at least one input"),
    ],
)
def test_a_dataset_that_does_not_fit_says_what_came_and_what_was_wanted(changes, words):
    with pytest.raises(DataError, match=words):
        Dataset(**arrays(**changes))


def test_the_loss_is_the_mean_cross_entropy_of_the_normalised_inputs():
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    loss = Pairs().loss(torch.nn.Identity(), x, torch.tensor([0, 0]))
    expected = (np.log1p(np.exp(-1)) + np.log1p(np.exp(2))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)  # float32
    loss.backward()
    assert x.grad is not None


@pytest.mark.parametrize("batch_size", [1, 2, 3, 64, 65, 1000])
def test_an_evaluation_adds_up_to_the_same_in_any_batches(batch_size):
    x = torch.randn(65, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(65) % 3
    loss, correct = Pairs().evaluate(Recorder(), x, y, batch_size)
    expected = -torch.log_softmax(x.double() / 2, 1)[torch.arange(65), y].sum().item()
    assert loss == pytest.approx(expected, rel=1e-6)  # float32
    assert correct == sum(int(row.argmax()) == label for row, label in zip(x, y.tolist(), strict=True))


def test_an_evaluation_of_nothing_is_zero_and_asks_no_model():
    model = Recorder()
    assert Pairs().evaluate(model, torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) == (0.0, 0)
    assert model.seen == []


def test_an_evaluation_runs_in_evaluation_mode_without_a_graph():
    model = Recorder().train()
    Pairs().evaluate(model, torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64), batch_size=2)
    assert model.seen == [(False, False, 2), (False, False, 2), (False, False, 1)]
    assert torch.is_grad_enabled()


def test_an_evaluation_restores_the_mode_of_each_module():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(3)).train()
    model[1].eval()  # frozen statistics
    Pairs().evaluate(model, torch.zeros(2, 3), torch.tensor([0, 1]))
    assert [module.training for module in model.modules()] == [True, True, False]


def test_an_evaluation_that_fails_restores_the_mode_too():
    model = torch.nn.Linear(7, 3).train()
    with pytest.raises(RuntimeError):
        Pairs().evaluate(model, torch.zeros(2, 3), torch.tensor([0, 1]))
    assert model.training
