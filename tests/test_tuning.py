"""The tuner finds what the paper's figures say, for the methods as plain formulas; the optimizers then take as many steps."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import relay_reference as methods
import torch

from mpisign.quadratics import RandomQuadratics
from mpisign.topology import binary_tree, chain, star
from mpisign.tuning import Tuned, sampled_steps, tune_fastest, tune_plateau

STAR_32 = methods.metropolis_hastings(list(star(32).neighbors))
RING_24, RING_8, RING_6 = (methods.metropolis_hastings(methods.ring(n)) for n in (24, 8, 6))


def curve(n: int, heterogeneity: float, distance: float, method: Any, **settings: Any) -> Any:
    problem = RandomQuadratics(n, heterogeneity=heterogeneity, distance=distance, mu=0.5)

    def run(lr: float) -> Iterator[float]:
        for models in method(problem.gradients, torch.zeros(n, 10, dtype=torch.float64), lr, **settings):
            yield problem.suboptimality(models)

    return run


FASTEST = [  # steps and γ as published, of one run with seed 0; their γ is half of the step size that was used
    pytest.param(24, 1, 100, methods.mean, {}, (7, 0.78125), id="all-reduce 24"),
    pytest.param(6, 1, 100, methods.gradient_tracking, {"w": RING_6}, (51, 0.3125), id="gradient tracking, ring 6"),
    pytest.param(24, 1, 100, methods.push, {}, (411, 0.024871826171875), id="SGP 24"),
    pytest.param(24, 1, 100, methods.relay, {"tree": binary_tree(24)}, (27, 0.8984375), id="tree 24", marks=pytest.mark.slow),
    pytest.param(24, 1, 100, methods.relay, {"tree": chain(24)}, (69, 0.8984375), id="chain 24", marks=pytest.mark.slow),
    pytest.param(24, 1, 100, methods.d2, {"w": RING_24}, (57, 0.1953125), id="D2, ring 24", marks=pytest.mark.slow),
]  # fmt: skip
FASTEST_OF_32 = [  # at most 10⁴ steps
    pytest.param(0.1, methods.relay, {"tree": star(32)}, (8, 0.78125), id="star 32"),
    pytest.param(0.1, methods.d2, {"w": STAR_32}, (65, 0.078125), id="D2, star 32"),
    pytest.param(0.0, methods.relay, {"tree": chain(32)}, (51, 0.869140625), id="chain 32, 0", marks=pytest.mark.slow),
    pytest.param(0.01, methods.relay, {"tree": chain(32)}, (51, 0.869140625), id="chain 32, .01", marks=pytest.mark.slow),
    pytest.param(1.0, methods.relay, {"tree": chain(32)}, (50, 0.8837890625), id="chain 32, 1", marks=pytest.mark.slow),
    pytest.param(0.1, methods.gradient_tracking, {"w": STAR_32}, (295, 0.017242431640625), id="tracking", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("n, heterogeneity, distance, method, settings, published", FASTEST)
def test_the_fastest_step_size_is_the_papers(n, heterogeneity, distance, method, settings, published) -> None:
    found = tune_fastest(curve(n, heterogeneity, distance, method, **settings), 1e-6)
    assert (found.steps, found.lr / 2) == published


@pytest.mark.parametrize("heterogeneity, method, settings, published", FASTEST_OF_32)
def test_the_fastest_step_size_with_32_workers_is_the_papers(heterogeneity, method, settings, published) -> None:
    found = tune_fastest(curve(32, heterogeneity, 1, method, **settings), 1e-6, most=10_000)
    assert (found.steps, found.lr / 2) == published


def test_the_step_size_of_a_plateau_is_the_papers() -> None:
    found = tune_plateau(curve(8, 0.1, 10, methods.relay_grad, tree=chain(8)), 1e-6)
    assert found == Tuned(402, 0.0457763671875)
    found = tune_plateau(curve(8, 0.01, 10, methods.gossip, w=RING_8), 1e-6)
    assert found == Tuned(553, 0.0335693359375)


def test_what_never_gets_there_has_no_best_step_size() -> None:
    assert tune_fastest(lambda _: iter([1.0] * 50), 1e-6, most=40) == Tuned()
    assert tune_fastest(lambda _: iter([1.0, math.nan]), 1e-6, most=40) == Tuned()
    assert tune_plateau(lambda _: iter([1.0, 2.0, 3.0]), 1e-6, most=40) == Tuned()


def test_test_points_are_dense_first_and_whole() -> None:
    points = sorted(sampled_steps(10_000))
    assert points[:5] == [1, 2, 3, 4, 5]
    assert points[-1] == 10_000
    assert len(points) < 1000
