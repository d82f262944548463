"""The contract of an algorithm."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..algorithms.base import DistributedOptimizer
from ..algorithms.weights import checksum
from ..comm import Comm, simulate
from ..errors import MpisignError
from .checks import RANKS, STEPS, require
from .odd_model import give_gradients, odd_model


def check_algorithm(make: Callable[..., DistributedOptimizer], ranks: Sequence[int] = RANKS) -> None:
    """Check an algorithm, `make(params, comm=…)`, with its defaults.

    Equal parameters on all ranks, whatever shapes and dtypes; the same bits in a second run; a worker without gradients,
    or with NaN, harms nobody; every hyperparameter that it takes has an effect; schedulers, closures, groups and
    state_dict work, and a resumed run equals an uninterrupted one; another model's state is refused, and changes nothing.
    Of one that is not `replicated` all but the first, each rank having a model of its own; and a worker with NaN does as
    one without gradients.
    """
    if simulate(1, lambda comm: make(odd_model().values(), comm=comm).replicated)[0]:
        _check_equal_models(make, ranks)
        _check_nothing_to_vote_on(make)
    else:
        _check_own_models(make, ranks)
        _check_nothing_to_relay(make)
    _check_hyperparameters(make)
    _check_as_torch_optimizer(make)


def _check_equal_models(make: Callable[..., DistributedOptimizer], ranks: Sequence[int]) -> None:
    for size in ranks:
        first, second = (simulate(size, _train, make) for _ in range(2))
        require(len(set(first)) == 1, f"{size} ranks end with different parameters")
        require(first == second, f"{size} ranks end with other parameters in a second run")
        absent = simulate(size, _train, make, lambda rank, step: "all" if rank == 0 and step == 2 else "")
        require(len(set(absent)) == 1, f"{size} ranks differ after a step in which rank 0 has no gradient")
        nan = simulate(
            size, _train, make, lambda rank, step, last=size - 1: "nan" if rank == last and step == 2 else ""
        )
        require(len(set(nan)) == 1, f"{size} ranks differ after a step with NaN on one of them")


def _check_own_models(make: Callable[..., DistributedOptimizer], ranks: Sequence[int]) -> None:
    for size in ranks:
        first, second = (simulate(size, _train, make) for _ in range(2))
        require(first == second, f"{size} ranks end with other parameters in a second run")
        absent, nan = (
            simulate(size, _train, make, lambda rank, step, what=what: what if rank == 0 and step == 2 else "")
            for what in ("all", "nan everywhere")  # one that is finite in part may count in part
        )
        require(absent != first, f"{size} ranks: a gradient of rank 0 has no effect")
        require(absent == nan, f"{size} ranks: a step with NaN is not the same as one without gradients")


def _no_trouble(rank: int, step: int) -> str:
    return ""


def _train(
    comm: Comm,
    make: Callable[..., DistributedOptimizer],
    trouble: Callable[[int, int], str] = _no_trouble,
    settings: dict[str, Any] | None = None,
) -> int:
    model = odd_model(seed=comm.rank)  # different on purpose: constructing must make them equal
    optimizer = make(model.values(), comm=comm, **(settings or {}))
    frozen = model["frozen"].detach().clone()
    for step in range(STEPS):
        what = trouble(comm.rank, step)
        give_gradients(model, comm.rank, step, list(model) if what == "all" else ["single"] if comm.rank else [])
        for name in ["matrix"] if what == "nan" else list(model) if what == "nan everywhere" else []:
            if model[name].requires_grad:
                model[name].grad = torch.full_like(model[name], float("nan"))
        with np.errstate(all="ignore"):
            _step_without_warning(optimizer)
        require(
            optimizer.report.finite == ("nan" not in what), f"step {step}: report.finite is {optimizer.report.finite}"
        )
        if not optimizer.replicated:
            continue  # nobody knows of all
        about = step - optimizer.late
        troubles = [trouble(rank, about) if about >= 0 else "all" for rank in range(comm.size)]
        # one whose gradient is finite in part may abstain on the rest only, or as a whole
        least, most = comm.size - sum(map(bool, troubles)), comm.size - troubles.count("all")
        voters = optimizer.report.voters
        require(least <= voters <= most, f"step {step}: {voters} voters, not {least} to {most}")
    require(torch.equal(frozen, model["frozen"]), "a parameter without gradient was changed")
    require(all(bool(p.isfinite().all()) for p in model.values()), "a parameter is no longer finite")
    return checksum(model.values())


def _step_without_warning(optimizer: DistributedOptimizer) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        optimizer.step()


def _check_nothing_to_vote_on(make: Callable[..., DistributedOptimizer]) -> None:
    def body(comm: Comm) -> bool:
        model = odd_model()
        optimizer = make(model.values(), comm=comm)
        before = checksum(model.values())
        optimizer.step()
        return optimizer.report.voters == 0 and checksum(model.values()) == before

    require(all(simulate(3, body)), "a step in which no rank has a gradient changed a parameter, or counted voters")


def _check_nothing_to_relay(make: Callable[..., DistributedOptimizer]) -> None:
    def body(comm: Comm) -> bool:
        model = odd_model()
        optimizer = make(model.values(), comm=comm)
        before = [p.detach().clone() for p in model.values()]
        for _ in range(STEPS):
            optimizer.step()
        return all(
            torch.allclose(p, q, rtol=8 * torch.finfo(p.dtype).eps)  # means of equal numbers, rounded
            for p, q in zip(model.values(), before, strict=True)
        )

    require(all(simulate(3, body)), "steps in which no rank has a gradient moved a model away from the start")


def _check_hyperparameters(make: Callable[..., DistributedOptimizer]) -> None:
    plain = simulate(2, _train, make)
    takes = inspect.signature(make).parameters
    other = not takes["nesterov"].default if "nesterov" in takes else True
    for name, value in (("lr", 0.017), ("momentum", 0.3), ("weight_decay", 0.3), ("nesterov", other), ("seed", 5)):
        if name in takes:
            # a seed has nothing to name but a codec's coins where a codec can be chosen
            chosen = {"codec": "qsgd:4"} if name == "seed" and "codec" in takes else {}
            before = simulate(2, _train, make, _no_trouble, chosen) if chosen else plain
            changed = simulate(2, _train, make, _no_trouble, {name: value, **chosen})
            require(changed != before, f"{name}={value} has no effect")


def _check_as_torch_optimizer(make: Callable[..., DistributedOptimizer]) -> None:
    def whole(comm: Comm) -> int:
        model = odd_model()
        optimizer = make(_two_groups(model), comm=comm)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(STEPS):
            require(optimizer.step(_closure(model, comm.rank, step)) == step, "step does not return the closure's loss")
            schedule.step()
        return checksum(model.values())

    def resumed(comm: Comm) -> int:
        model, saved = odd_model(), dict[str, Any]()
        for first, last in ((0, 3), (3, STEPS)):
            optimizer = make(_two_groups(model), comm=comm)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if saved:
                optimizer.load_state_dict(saved["optimizer"])
                schedule.load_state_dict(saved["schedule"])
            for step in range(first, last):
                optimizer.step(_closure(model, comm.rank, step))
                schedule.step()
            state = optimizer.state_dict()
            saved = {"optimizer": {**state, "state": _copied(state["state"])}, "schedule": schedule.state_dict()}
        return checksum(model.values())

    def refusing(comm: Comm) -> int:
        model = odd_model()
        optimizer = make(_two_groups(model), comm=comm)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        others = {
            name: nn.Parameter(p.detach().repeat(2, *[1] * p.dim()), p.requires_grad) for name, p in model.items()
        }
        other = make(_two_groups(others), comm=comm)
        for p in others.values():
            p.grad = torch.ones_like(p) if p.requires_grad else None
        other.step()
        for step in range(STEPS):
            optimizer.step(_closure(model, comm.rank, step))
            schedule.step()
            try:
                optimizer.load_state_dict(other.state_dict())
            except MpisignError:
                continue
            require(False, "load_state_dict takes what a model with other shapes has saved")
        return checksum(model.values())

    expected = simulate(3, whole)
    require(expected == simulate(3, resumed), "a run resumed from state_dict differs from an uninterrupted one")
    require(expected == simulate(3, refusing), "a state_dict that is refused changes what comes after it")


def _two_groups(model: dict[str, nn.Parameter]) -> list[dict[str, Any]]:
    names = list(model)
    return [
        {"params": [model[name] for name in names[:5]]},
        {"params": [model[name] for name in names[5:]], "lr": 0.02},
    ]


def _closure(model: dict[str, nn.Parameter], rank: int, step: int) -> Callable[[], int]:
    def evaluate() -> int:
        give_gradients(model, rank, step)
        return step

    return evaluate


def _copied(state: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {
        key: {name: value.clone() if isinstance(value, Tensor) else value for name, value in entry.items()}
        for key, entry in state.items()
    }
