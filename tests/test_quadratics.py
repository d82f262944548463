import json
import os
from pathlib import Path

import pytest
import torch

from mpisign.quadratics import Delivery, RandomQuadratics, mean_samples

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

GOLDEN = Path(
    os.environ.get("MPISIGN_SHARED_GOLDEN", Path(__file__).parents[2] / "shared" / "golden" / "quadratics.json")
)


def test_the_problem_is_the_papers() -> None:
    # the spec's check of the generator: n=4, d=10, mu=.5, ζ²=1, seed 0; printed to 11 decimals
    problem = RandomQuadratics(4, heterogeneity=1.0, mu=0.5)
    for found, wanted in (
        (problem.a[0, 0, :4], [-0.50359591961, -0.03684564938, -0.19980821825, 0.11003658122]),
        (problem.b[0, :4], [0.76042436848, -0.27696662912, -0.62870663416, 0.17990119100]),
        (problem.optimum[:4], [-0.20562794911, -0.26650137049, -0.47504008716, 0.02317299499]),
    ):
        assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=6e-12)
    assert problem.least == pytest.approx(1.48562251273, abs=6e-12)


def test_the_problem_is_the_golden_files() -> None:
    if not GOLDEN.is_file():
        pytest.skip(f"no {GOLDEN}")
    wanted = json.loads(GOLDEN.read_text())["task_n4"]
    problem = RandomQuadratics(4, heterogeneity=1.0, mu=0.5)
    # rounding of two solvers
    assert problem.a[0, 0, :4].tolist() == pytest.approx(wanted["A0_row0"], abs=1e-13)
    assert problem.b[0, :4].tolist() == pytest.approx(wanted["B0"], abs=1e-13)
    assert problem.least == pytest.approx(wanted["fstar"], abs=1e-13)


@pytest.mark.parametrize("heterogeneity", [0.0, 0.01, 1.0])
def test_the_distance_to_go_does_not_depend_on_heterogeneity(heterogeneity: float) -> None:
    problem = RandomQuadratics(32, heterogeneity=heterogeneity, mu=0.5)
    assert problem.suboptimality(torch.zeros(32, 10, dtype=torch.float64)) == pytest.approx(0.592253522456, abs=6e-13)


@pytest.mark.parametrize("mu", [None, 0.5])
@pytest.mark.parametrize("heterogeneity", [0.0, 0.1, 7.0])
@pytest.mark.parametrize("workers", [2, 3, 7])
def test_heterogeneity_and_optimum_are_as_asked(workers: int, heterogeneity: float, mu: float | None) -> None:
    problem = RandomQuadratics(workers, 6, heterogeneity=heterogeneity, distance=3.0, mu=mu, seed=2)
    at_optimum = torch.stack([problem.gradient(worker, problem.optimum) for worker in range(workers)])
    assert float((at_optimum**2).sum(1).mean()) == pytest.approx(heterogeneity, abs=1.1e-5)  # met to 1e-5
    assert torch.allclose(at_optimum.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-12)
    assert float(problem.optimum.norm()) == pytest.approx(3.0)
    singular = torch.linalg.svdvals(problem.a)
    assert torch.allclose(singular.amax(1), torch.ones(workers, dtype=torch.float64))
    if mu is not None:
        assert torch.allclose(singular.amin(1), torch.full((workers,), mu, dtype=torch.float64))


def test_the_gradient_is_half_of_the_values_derivative() -> None:
    problem = RandomQuadratics(3, 5, seed=1)
    x = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (derivative,) = torch.autograd.grad(((problem.a[1] @ x - problem.b[1]) ** 2).sum(), x)
    assert torch.allclose(problem.gradient(1, x.detach()), derivative / 2)
    models = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    each = torch.stack([problem.gradient(worker, models[worker]) for worker in range(3)])
    assert torch.allclose(problem.gradients(models), each)


def test_noise_has_the_variance_asked_for() -> None:
    problem = RandomQuadratics(2, 200, noise=0.3)
    x = torch.zeros(200, dtype=torch.float64)
    noise = problem.gradient(0, x, problem.generator(0)) - problem.gradient(0, x)
    assert float((noise**2).sum()) == pytest.approx(0.09, rel=0.45)  # 4.5 standard deviations of a χ² of 200
    again = problem.gradient(0, x, problem.generator(0)) - problem.gradient(0, x)
    other = problem.gradient(0, x, problem.generator(1)) - problem.gradient(0, x)
    assert torch.equal(noise, again)
    assert not torch.equal(noise, other)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"workers": 0}, "at least 1"),
        ({"workers": 1}, "differs from nobody"),
        ({"workers": 2, "heterogeneity": -1.0}, "at least 0"),
        ({"workers": 2, "mu": 1.0}, "strictly between"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RandomQuadratics(**settings)


def test_a_delivery_is_one_step_of_one_worker() -> None:
    probe = Delivery(4, source=2)
    given = [[-0.1 * probe.gradient(worker, step, lr=0.1) for worker in range(4)] for step in range(3)]
    assert given == [[0, 0, 4, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(ValueError, match="0 to 3"):
        Delivery(4, source=4)


def test_samples_have_mean_1_and_are_a_workers_own() -> None:
    first, second = mean_samples(0, 10_000), mean_samples(1, 10_000)
    assert float(first.mean()) == pytest.approx(1.0, abs=0.05)  # 5 standard deviations
    assert not torch.equal(first, second)
