import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mpisign.errors import DataError
from mpisign.tasks import digits
from mpisign.tasks.digits import Digits


@pytest.fixture(scope="module")
def data():
    return Digits().read(None)


def test_the_digits_are_split_into_1437_and_360(data):
    assert data.x_train.shape == (1437, 1, 8, 8)
    assert data.x_test.shape == (360, 1, 8, 8)
    assert data.shape == (1, 8, 8)
    assert data.x_train.dtype == np.uint8
    assert data.x_train.max() == 16


def test_every_class_gives_a_fifth_to_the_test_set(data):
    train, test = np.bincount(data.y_train, minlength=10), np.bincount(data.y_test, minlength=10)
    assert np.abs(test - (train + test) / 5).max() < 1


def test_the_two_parts_together_are_the_digits_of_scikit_learn(data):
    x, y = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    ours = np.column_stack(
        [
            np.concatenate([data.x_train, data.x_test]).reshape(-1, 64),
            np.concatenate([data.y_train, data.y_test]),
        ]
    )
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, np.column_stack([x, y]).astype(int).tolist()))


def test_the_split_is_always_the_same_and_shuffled(data):
    again = Digits().read(None)
    assert np.array_equal(again.x_train, data.x_train)
    assert np.array_equal(again.y_test, data.y_test)
    assert len(np.unique(data.y_train[:100])) == 10
    assert len(np.unique(data.y_test[:100])) == 10


def find(package, monkeypatch):
    """Let `digits` find this package where it looks for scikit-learn."""
    monkeypatch.setattr(digits, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: package)))


def test_without_the_file_scikit_learn_is_asked_and_gives_the_same(data, monkeypatch, tmp_path):
    find(SimpleNamespace(origin=str(tmp_path / "__init__.py")), monkeypatch)
    asked = Digits().read(None)
    assert np.array_equal(asked.x_train, data.x_train)
    assert np.array_equal(asked.y_train, data.y_train)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    find(None, monkeypatch)
    with pytest.raises(DataError, match="pip install scikit-learn"):
        Digits().read(None)


def test_reading_the_digits_imports_no_scikit_learn():
    script = (
        "import sys; from mpisign.tasks.digits import Digits; Digits().read(None); "
        "print([name for name in ('sklearn', 'scipy', 'torchvision') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_inputs_have_mean_0_and_deviation_1(data):
    x = torch.from_numpy(data.x_train)
    inputs = Digits().inputs(x)
    assert inputs.dtype == torch.float32
    assert inputs.shape == (1437, 1, 8, 8)
    assert abs(inputs.mean().item()) < 0.01  # the constants have three digits
    assert abs(inputs.std().item() - 1) < 0.01
    assert torch.equal(Digits().inputs(x.to(torch.float32)), inputs)
