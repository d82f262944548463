from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mpisign import (
    D2,
    DPSGD,
    AllReduceModel,
    ExactDiffusion,
    GradientTracking,
    QuasiGlobal,
    StochasticGradientPush,
    simulate,
    testing,
)
from mpisign.comm import Comm
from mpisign.errors import DisagreementError, ParameterError, TopologyError
from mpisign.quadratics import RandomQuadratics
from mpisign.topology import Digraph, exponential, ring
from mpisign.topology.weights import metropolis_hastings

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def descend(
    comm: Comm,
    kind: Any,
    problem: RandomQuadratics,
    steps: int,
    lr: float = 0.1,
    momentum: float = 0.0,
    **settings: Any,
) -> Tensor:
    """Return this worker's model after so many steps."""
    x = torch.nn.Parameter(torch.zeros(problem.numel, dtype=torch.float64))
    optimizer = kind([x], lr=lr, momentum=momentum, comm=comm, **settings)
    for _ in range(steps):
        x.grad = problem.gradient(comm.rank, x.detach())
        optimizer.step()
    optimizer.settle()
    return x.detach()


def models(n: int, kind: Any, problem: RandomQuadratics, steps: int, **settings: Any) -> Tensor:
    return torch.stack(simulate(n, lambda comm: descend(comm, kind, problem, steps, **settings)))


PROBLEM = RandomQuadratics(5, 4, heterogeneity=1.0, mu=0.5)


@pytest.mark.parametrize(
    "kind, settings",
    [
        (D2, {"topology": "chain"}),
        (ExactDiffusion, {}),
        (GradientTracking, {"lr": 0.05}),
        (AllReduceModel, {}),
    ],
)
def test_methods_that_correct_reach_the_optimum_of_heterogeneous_workers(kind: Any, settings: dict[str, Any]) -> None:
    assert torch.allclose(models(5, kind, PROBLEM, 350, **settings), PROBLEM.optimum.expand(5, -1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [DPSGD, QuasiGlobal, StochasticGradientPush])
def test_methods_that_dont_correct_stop_short_of_it(kind: Any) -> None:
    found = models(5, kind, PROBLEM, 150)
    assert 5e-3 < float((found - PROBLEM.optimum).abs().max()) < 0.5


def test_overlapped_gossip_is_wx_plus_u() -> None:
    w, x = torch.from_numpy(metropolis_hastings(ring(5))), torch.zeros(5, 4, dtype=torch.float64)
    for _ in range(30):
        x = w @ x - 0.1 * PROBLEM.gradients(x)
    assert torch.allclose(models(5, DPSGD, PROBLEM, 30, delay="overlapped"), x, rtol=0, atol=1e-13)


def test_push_sum_on_an_uneven_digraph_is_its_formula() -> None:
    digraph = Digraph(((1, 2), (2,), (3,), (4, 0), (0,)))
    a = torch.zeros(5, 5, dtype=torch.float64)
    for j, successors in enumerate(digraph.successors):
        a[[j, *successors], j] = 1 / (1 + len(successors))
    z, weight = torch.zeros(5, 4, dtype=torch.float64), torch.ones(5, 1, dtype=torch.float64)
    for _ in range(20):
        z = a @ (z - 0.1 * PROBLEM.gradients(z / weight))
        weight = a @ weight
    found = models(5, StochasticGradientPush, PROBLEM, 20, topology=digraph, rounds=1)
    assert torch.allclose(found, z / weight, rtol=0, atol=1e-12)


def test_the_reference_pushes_in_an_order_of_its_own() -> None:
    problem, offsets = RandomQuadratics(16, 4, heterogeneity=1.0, mu=0.5), [(1, 1), (4, 8), (1, 4), (4, 2)]
    x = torch.zeros(16, 4, dtype=torch.float64)
    for step in range(10):
        x = x - 0.1 * problem.gradients(x)
        for offset in offsets[step % 4]:
            x = (x + torch.roll(x, offset, 0)) / 2
    topology = "one_peer_exponential:order=reference:rounds_a_step=2"
    found = models(16, StochasticGradientPush, problem, 10, topology=topology)
    assert torch.allclose(found, x, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_d2_diverges_on_a_tree_of_32_and_exact_diffusion_does_not() -> None:
    problem = RandomQuadratics(32, 2, heterogeneity=1.0, mu=0.5)

    def spread(kind: Any) -> float:
        found = models(32, kind, problem, 400, lr=0.02, topology="binary_tree")
        return float((found - found.mean(0)).norm())

    with pytest.warns(RuntimeWarning, match=r"smallest eigenvalue is -0.3483"):
        assert spread(D2) > 10
    assert spread(ExactDiffusion) < 0.1


def test_d2_says_nothing_where_it_converges(recwarn: pytest.WarningsRecorder) -> None:
    models(4, D2, RandomQuadratics(4, 2, heterogeneity=0.0), 1)  # an even ring has -1/3 exactly
    assert not recwarn.list


def test_momentum_of_models_averaged_is_momentum_on_the_mean_gradient() -> None:
    x, buffer = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for _ in range(20):
        gradient = torch.stack([PROBLEM.gradient(worker, x) for worker in range(5)]).mean(0)
        buffer = 0.9 * buffer + gradient
        x = x - 0.1 * (gradient + 0.9 * buffer)
    found = models(5, AllReduceModel, PROBLEM, 20, momentum=0.9)
    assert torch.allclose(found, x.expand(5, -1), rtol=0, atol=1e-13)
    assert all(torch.equal(row, found[0]) for row in found)


# ---- quasi-global momentum ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_without_a_step_size_leaves_the_quasi_global_momentum_alone(dtype: torch.dtype) -> None:
    # the first step of a warm-up; elsewhere the rounding of averages of equal models, over 1e-8, became a momentum
    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        x = torch.nn.Parameter(torch.full((50,), 0.1, dtype=dtype) * torch.arange(50))
        start = x.detach().clone()
        optimizer = QuasiGlobal([x], lr=0.0, comm=comm)
        for _ in range(3):
            x.grad = torch.randn(50, dtype=dtype, generator=torch.Generator().manual_seed(comm.rank))
            optimizer.step()
        return x.detach() - start, optimizer.state[x]["momentum_buffer"]

    for moved, momentum in simulate(7, body):
        assert not moved.any()
        assert not momentum.any()


def test_quasi_global_momentum_is_its_formula() -> None:
    w = torch.from_numpy(metropolis_hastings(ring(5)))
    x, m = torch.zeros(5, 4, dtype=torch.float64), torch.zeros(5, 4, dtype=torch.float64)
    for _ in range(20):
        g = PROBLEM.gradients(x)
        after = w @ (x - 0.1 * (g + 0.9 * (0.9 * m + g)))
        m, x = 0.9 * m + 0.1 * (x - after) / 0.1, after
    assert torch.allclose(models(5, QuasiGlobal, PROBLEM, 20, momentum=0.9), x, rtol=0, atol=1e-13)


def test_quasi_global_momentum_has_no_adam() -> None:
    with pytest.raises(ParameterError, match="sgd or damped"):
        simulate(2, lambda comm: QuasiGlobal([torch.nn.Parameter(torch.zeros(1))], local="adam", comm=comm))


# ---- contract, settings ----


def test_overlapped_gossip_keeps_the_contract() -> None:
    class Overlapped(DPSGD):
        def __init__(self, params, lr=0.1, momentum=0.9, weight_decay=0.0, *, nesterov=True, comm=None):
            super().__init__(params, lr, momentum, weight_decay, delay="overlapped", nesterov=nesterov, comm=comm)

    testing.check_algorithm(Overlapped, ranks=(2, 3))


def test_static_push_sum_keeps_the_contract() -> None:
    class Uneven(StochasticGradientPush):
        def __init__(self, params, lr=0.1, momentum=0.9, weight_decay=0.0, *, nesterov=True, comm=None):
            graph = (
                Digraph.from_edges(3, [(0, 1), (0, 2), (1, 2), (2, 0)]) if comm.size == 3 else exponential(comm.size)
            )
            super().__init__(params, lr, momentum, weight_decay, topology=graph, nesterov=nesterov, comm=comm)

    testing.check_algorithm(Uneven, ranks=(2, 3))


@pytest.mark.parametrize(
    "kind, settings, error, words",
    [
        (DPSGD, {"topology": "double_binary_trees"}, TopologyError, "undirected graph"),
        (DPSGD, {"topology": "ring:5"}, TopologyError, "5"),
        (DPSGD, {"weights": 0.7}, TopologyError, "number from 0 to 1"),
        (DPSGD, {"weights": np.eye(3)}, TopologyError, "shape"),
        (DPSGD, {"delay": "never"}, ParameterError, "'never'"),
        (StochasticGradientPush, {"rounds": 0}, ParameterError, "rounds must be at least 1"),
        (StochasticGradientPush, {"topology": "double_binary_trees"}, TopologyError, "several trees"),
        (StochasticGradientPush, {"topology": "one_peer_exponential:order=reference"}, ParameterError, "they are 2"),
    ],
)
def test_what_is_wrong_on_one_rank_is_raised_on_all(
    kind: Any, settings: dict[str, Any], error: type, words: str
) -> None:
    def body(comm: Comm) -> str:
        with pytest.raises(error) as caught:
            kind([torch.nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank == 2 else {}))
        return str(caught.value)

    messages = simulate(4, body)
    assert all(words in message for message in messages), messages


@pytest.mark.parametrize(
    "kind, settings",
    [
        (DPSGD, {"topology": "chain"}),
        (DPSGD, {"weights": 0.3}),
        (DPSGD, {"delay": "overlapped"}),
        (D2, {"local": "damped"}),
        (StochasticGradientPush, {"rounds": 3}),
        (StochasticGradientPush, {"topology": "ring"}),
    ],
)
def test_ranks_with_different_settings_are_told_so(kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(DisagreementError):
        simulate(
            4,
            lambda comm: kind([torch.nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank == 1 else {})),
        )
