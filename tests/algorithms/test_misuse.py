"""What users do with optimizers besides stepping; each case was found by somebody who tried."""

import copy
import pickle

import numpy as np
import pytest
import torch
from protocols import batch, small_model
from torch import nn

from mpisign import SGD, EFSignSGD, SignSGD, Signum, broadcast_buffers, checksum, simulate
from mpisign.comm import Comm
from mpisign.errors import DisagreementError, MpisignError, ParameterError

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


@pytest.mark.parametrize("kind", [Signum, SignSGD, SGD, EFSignSGD])
@pytest.mark.parametrize("size", [1, 3])
def test_gradients_that_are_zeroed_in_place_train_alike(kind: type, size: int) -> None:
    def body(comm: Comm, to_none: bool) -> int:
        model = small_model()
        optimizer = kind(model.parameters(), comm=comm)
        for step in range(5):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad(set_to_none=to_none)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return checksum(model.parameters())

    assert simulate(size, body, True) == simulate(size, body, False)


def test_a_gradient_belongs_to_the_user_after_a_step_too() -> None:
    def body(comm: Comm) -> list[float]:
        p = nn.Parameter(torch.zeros(2))
        optimizer = SGD([p], comm=comm)
        p.grad = torch.tensor([1.0, float(comm.rank)])
        optimizer.step()
        return p.grad.tolist()

    assert simulate(2, body) == [[1.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_weight_that_the_user_sets_stays_set(dtype: torch.dtype) -> None:
    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.ones(3, dtype=dtype))
        optimizer = Signum([p], lr=0.25, comm=comm)
        with torch.no_grad():
            p.zero_()
        p.grad = torch.ones_like(p)
        optimizer.step()
        return p.abs().max().item()

    assert simulate(2, body) == [0.25, 0.25]


@pytest.mark.parametrize("kind", [Signum, SGD])
@pytest.mark.parametrize(
    "settings", [{"lr": "0.1"}, {"lr": True}, {"lr": 1e300}, {"lr": 1e20, "weight_decay": 1e20}, {"momentum": None}]
)
def test_what_is_no_usable_number_is_refused(kind: type, settings: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match="must be"):
        simulate(2, lambda comm: kind([nn.Parameter(torch.zeros(1))], comm=comm, **settings))


@pytest.mark.parametrize(
    "settings", [{"vote": "sharded"}, {"tie": "plus"}, {"zero": "plus"}, {"seed": 7}, {"lr": 0.5}, {"momentum": 0.1}]
)
def test_ranks_with_other_settings_are_told_so(settings: dict[str, object]) -> None:
    with pytest.raises(DisagreementError):
        simulate(3, lambda comm: Signum([nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank else {})))


@pytest.mark.parametrize("settings", [{"vote": "foo"}, {"vote": dict}, {"vote": 5}, {"seed": -1}, {"seed": "a"}])
def test_what_is_wrong_on_one_rank_is_raised_on_all(settings: dict[str, object]) -> None:
    def body(comm: Comm) -> bool:
        with pytest.raises(MpisignError) as caught:
            Signum([nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank == 1 else {}))
        return caught.value.everywhere

    assert simulate(3, body) == [True] * 3


def test_a_refused_group_leaves_the_optimizer_as_it_was() -> None:
    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.zeros(1))
        optimizer = Signum([p], lr=1.0, comm=comm)
        with pytest.raises(ParameterError):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": -1.0})
        p.grad = torch.ones(1)
        optimizer.step()
        return p.item()

    assert simulate(2, body) == [-1.0, -1.0]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_optimizer_is_not_copied_by_halves(copied) -> None:
    optimizer = simulate(1, lambda comm: Signum([nn.Parameter(torch.zeros(1))], comm=comm))[0]
    with pytest.raises(TypeError, match=r"copy its state_dict\(\)"):
        copied(optimizer)


def test_a_rank_that_saves_alone_still_agrees_with_the_others() -> None:
    def body(comm: Comm) -> int:
        optimizer = Signum([nn.Parameter(torch.zeros(1))], comm=comm)
        optimizer.step()
        if comm.rank == 0:
            optimizer.state_dict()
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        return len(optimizer.param_groups)

    assert simulate(2, body) == [2, 2]


@pytest.mark.parametrize("change", [{"lr": -1.0}, {"shapes": [[2]]}])
def test_a_state_that_is_refused_changes_nothing(change: dict[str, object]) -> None:
    def body(comm: Comm) -> dict:
        optimizer = Signum([nn.Parameter(torch.zeros(1))], lr=0.5, comm=comm)
        state = optimizer.state_dict()
        state["param_groups"][0] |= change
        with pytest.raises(ParameterError, match=r"lr must be|had shapes 2, those here have 1; nothing was loaded"):
            optimizer.load_state_dict(state)
        return optimizer.state_dict()["param_groups"][0]

    assert simulate(1, body)[0]["lr"] == 0.5


def test_numpy_numbers_survive_a_safe_checkpoint(tmp_path) -> None:
    def body(comm: Comm) -> float:
        optimizer = Signum([nn.Parameter(torch.zeros(1))], lr=np.float64(0.1), comm=comm)
        torch.save(optimizer.state_dict(), tmp_path / "state.pt")
        return torch.load(tmp_path / "state.pt", weights_only=True)["param_groups"][0]["lr"]

    assert simulate(1, body) == [0.1]


def test_models_with_other_buffers_are_told_so() -> None:
    with pytest.raises(DisagreementError, match="different buffers"):
        simulate(2, lambda comm: broadcast_buffers(nn.BatchNorm1d(2 + comm.rank), comm))


@pytest.mark.parametrize("root", [-1, 2, 5])
def test_a_root_that_is_no_rank_is_refused(root: int) -> None:
    for verb in ("bcast", "gather", "send", "receive"):
        with pytest.raises(ValueError, match=f"no rank {root} among 2"):
            simulate(2, lambda comm, verb=verb: getattr(comm, verb)(torch.zeros(1), root))


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="op must be sum, min or max, got 'prod'"):
        simulate(2, lambda comm: comm.allreduce(torch.zeros(1), "prod"))


def test_a_single_element_of_any_stride_has_the_checksum_of_its_value() -> None:
    wide = torch.arange(12.0).view(3, 4)
    assert checksum([wide[1:2, 2:3]]) == checksum([torch.tensor([[6.0]])])
    assert checksum([wide[:, 1:2][1:2]]) != checksum([torch.tensor([[6.0]])])
