"""The reference simulators' runs on random quadratics, through the optimizers, in the simulator or under mpirun."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mpisign.algorithms.allreduce_model import AllReduceModel
from mpisign.algorithms.d2 import D2, ExactDiffusion
from mpisign.algorithms.dpsgd import DPSGD
from mpisign.algorithms.gradient_tracking import GradientTracking
from mpisign.algorithms.quasi_global import QuasiGlobal
from mpisign.algorithms.relaysgd import RelaySGD
from mpisign.algorithms.relaysgd_grad import RelaySGDGrad
from mpisign.algorithms.sgp import StochasticGradientPush
from mpisign.comm import Comm
from mpisign.quadratics import RandomQuadratics

FILE = (
    Path(os.environ.get("MPISIGN_SHARED_GOLDEN", Path(__file__).parents[2] / "shared" / "golden")) / "quadratics.json"
)

TREE, OVERLAPPED = {"topology": "binary_tree"}, {"topology": "chain", "delay": "overlapped"}
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "RelaySGD chain": (RelaySGD, {"topology": "chain"}),
    "RelaySGD tree": (RelaySGD, TREE),
    "RelaySGD star": (RelaySGD, {"topology": "star"}),
    "RelaySGD overlap chain": (RelaySGD, OVERLAPPED),
    "RelaySGD overlap m=.9": (RelaySGD, OVERLAPPED),
    "RelaySGD/Grad chain": (RelaySGDGrad, {"topology": "chain"}),
    "RelaySGD/Grad overlap": (RelaySGDGrad, OVERLAPPED),
    "DP-SGD ring": (DPSGD, {}),
    "DP-SGD ring m=.9": (DPSGD, {}),
    "DP-SGD tree": (DPSGD, TREE),
    "D2 ring": (D2, {}),
    "D2 ring w=1/3-.01": (D2, {}),
    "exact diffusion ring": (ExactDiffusion, {}),
    "gradient tracking ring": (GradientTracking, {}),
    "QG momentum .9 ring": (QuasiGlobal, {"momentum": 0.9}),
    "SGP 2 rounds": (StochasticGradientPush, {}),
    "SGP 1 round": (StochasticGradientPush, {}),
    "all-reduce": (AllReduceModel, {}),
    "all-reduce m=.9": (AllReduceModel, {}),
}
ARGUMENTS = {
    "momentum": ("momentum", float),
    "gossip_weight": ("weights", float),
    "num_communication_rounds": ("rounds", int),
}

# a run that shows each optimizer, for slow machines and launchers
SHORT = (
    "RelaySGD tree",
    "RelaySGD overlap chain",
    "RelaySGD/Grad chain",
    "D2 ring",
    "gradient tracking ring",
    "SGP 2 rounds",
)


@functools.cache
def runs() -> list[dict[str, Any]]:
    """All runs of the file; none where it is missing."""
    return json.loads(FILE.read_text())["runs"] if FILE.is_file() else []


def named(name: str, n: int, heterogeneity: float) -> dict[str, Any]:
    """Return a run, or skip the test."""
    if not runs():
        pytest.skip(f"no {FILE}")
    (run,) = (r for r in runs() if (r["name"], r["n"], r["zeta2"]) == (name, n, heterogeneity))
    return run


def optimizer_of(name: str, params: Any, comm: Comm, lr: float, **kwargs: str) -> Any:
    """Return the optimizer that does what the run's simulator did."""
    kind, settings = METHODS[name]
    chosen = {ARGUMENTS[key][0]: ARGUMENTS[key][1](value) for key, value in kwargs.items()}
    return kind(params, lr=lr, **{"momentum": 0.0, "local": "damped", **settings, **chosen}, comm=comm)


def errors(comm: Comm, problem: RandomQuadratics, optimizer: Any, x: torch.nn.Parameter, at: list[int]) -> list[float]:
    """Return f(mean model) − f* after so many steps, on every rank."""
    found = []
    for step in range(max(at) + 1):
        if step in at:
            found.append(problem.suboptimality(comm.allgather(x.detach())))
        x.grad = problem.gradient(comm.rank, x.detach())
        optimizer.step()
    optimizer.settle()
    return found


def replay(comm: Comm, run: dict[str, Any], problem: RandomQuadratics) -> list[float]:
    """Do a golden run again; return the errors at its steps."""
    x = torch.nn.Parameter(torch.zeros(problem.numel, dtype=torch.float64))
    optimizer = optimizer_of(run["name"], [x], comm, run["lr"], **run["kwargs"])
    return errors(comm, problem, optimizer, x, [int(step) for step in run["err"]])


def assert_same(run: dict[str, Any], found: list[float]) -> None:
    """Compare with the file: to rounding up to step 100, later and below 1e-12 by the order of magnitude."""
    for (step, wanted), error in zip(run["err"].items(), found, strict=True):
        if wanted > 1e-12:
            # f − f* is a difference of numbers of order 1: 1e-14 are its roundings
            relative = 1e-9 if int(step) <= 100 else 1e-6
            assert error == pytest.approx(wanted, rel=relative, abs=1e-14), f"step {step}"
        else:
            assert abs(error) < 1e-12, f"step {step}"
