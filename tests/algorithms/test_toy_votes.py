"""Paper 1's toy and the papers' statements about votes, run through the optimizers themselves, attacks included."""

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from mpisign import SignSGD, seeding, simulate, theory
from mpisign.attacks import Attack, Honest, Invert, Random
from mpisign.comm import Comm
from mpisign.problems import NoisyQuadratic, Problem

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

TOY = NoisyQuadratic()  # 1000 coordinates with unit noise, f = 478 at the start on average


def descend(
    problem: Problem,
    size: int,
    steps: int,
    step: Callable[[int], float] = lambda k: 0.01,
    attack: type[Attack] = Honest,
    liars: int = 0,
    seen: Callable[[np.ndarray], float] | None = None,
    tie: str = "abstain",
    start: np.ndarray | None = None,
) -> list[float]:
    """`seen` (by default f) at x_0 … x_steps of signSGD, of which `liars` workers attack."""
    look = seen or problem.value
    first = problem.start if start is None else start

    def body(comm: Comm) -> list[float]:
        x = nn.Parameter(torch.from_numpy(first.astype(np.float32)))
        optimizer = SignSGD([x], lr=step(0), tie=tie, comm=comm)
        ranks = range(size - liars, size)
        lie = (attack if comm.rank in ranks else Honest)(comm.rank, ranks, size)
        random = seeding.generator(0, comm.rank, "noise")
        looked = []
        for k in range(steps):
            point = x.detach().numpy().astype(np.float64)
            looked.append(look(point) if comm.rank == 0 else 0.0)
            drawn = torch.from_numpy(problem.stochastic_gradient(point, random).astype(np.float32))
            x.grad = lie([drawn], k)[0]
            optimizer.param_groups[0]["lr"] = step(k)
            optimizer.step()
        return [*looked, look(x.detach().numpy().astype(np.float64))]

    return simulate(size, body)[0]


# ---- paper 1's toy: f after so many steps of .01 ----

TOYS = [  # workers, attack, attackers, {step: f}
    (1, Honest, 0, {100: 140.3, 500: 3.53, 1000: 2.94}),
    (3, Honest, 0, {100: 105.1, 500: 2.07, 1000: 1.92}),
    (9, Honest, 0, {100: 83.1, 500: 1.31, 1000: 1.33}),
    (27, Honest, 0, {100: 74.8, 500: 0.80, 1000: 0.74}),
    (27, Invert, 3, {100: 77.4, 500: 0.94, 1000: 0.92}),
    (27, Invert, 9, {100: 104.1, 500: 2.34, 1000: 2.27}),
    (27, Invert, 12, {100: 207, 500: 15.4, 1000: 6.7}),
    (27, Invert, 13, {100: 329.7, 500: 111.9, 1000: 44.2}),
    (27, Invert, 14, {100: 774.7, 500: 4984, 1000: 22021}),
    (27, Random, 13, {100: 87.7, 500: 1.46, 1000: 1.50}),
    (27, Random, 26, {100: 403, 500: 199, 1000: 84.7}),
]


def assert_in_bands(values: list[float], bands: dict[int, float]) -> None:
    """Within 25 %: the start's 1000 coordinates alone vary f by √(2/1000) = 4.5 %, the end's heavy tails by 8 %."""
    for step, expected in bands.items():
        assert values[step] == pytest.approx(expected, rel=0.25), step


@pytest.mark.parametrize("size, attack, liars, bands", TOYS)
def test_the_toy_falls_as_printed_in_its_first_hundred_steps(
    size: int, attack: type[Attack], liars: int, bands: dict[int, float]
) -> None:
    assert_in_bands(descend(TOY, size, 100, attack=attack, liars=liars), {100: bands[100]})


@pytest.mark.slow
@pytest.mark.parametrize("size, attack, liars, bands", TOYS)
def test_the_toy_ends_as_printed(size: int, attack: type[Attack], liars: int, bands: dict[int, float]) -> None:
    assert_in_bands(descend(TOY, size, 1000, attack=attack, liars=liars), bands)


# ---- ties ----


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16])
def test_with_plus_pure_noise_drifts_by_the_share_of_ties(size: int) -> None:
    numel, count = 1024, 40
    noise = NoisyQuadratic(numel=numel, noise=1e6)  # so that x itself never shows
    (*_, end) = descend(noise, size, count, lambda k: 1.0, tie="plus", seen=np.mean, start=np.zeros(numel))
    ties = 0 if size % 2 else comb(size, size // 2) / 2**size  # 50, 37.5, 27 and 19.6 % at 2, 4, 8 and 16
    assert end / count == pytest.approx(-ties, abs=4 / np.sqrt(numel * count))  # four standard errors of ±1


@pytest.mark.parametrize("odd", [1, 3, 7])
def test_an_even_number_of_voters_moves_as_far_as_one_less_where_ties_stay(odd: int) -> None:
    numel, count, snr = 1024, 40, 0.3
    far = NoisyQuadratic(numel=numel, noise=1e6 / snr)
    start = np.full(numel, 1e6)  # S stays .3: the steps are small against x
    rho = stats.norm.cdf(snr)
    expected = 2 * float(theory.vote_success(rho, odd)) - 1
    for size in (odd, odd + 1):
        (*_, end) = descend(far, size, count, lambda k: 1.0, seen=lambda x: float(np.mean(1e6 - x)), start=start)
        assert end / count == pytest.approx(expected, abs=4 / np.sqrt(numel * count))  # four standard errors


# ---- rates ----


def rho_norm(workers: int) -> Callable[[np.ndarray], float]:
    """The ρ_M-norm of x, the toy's gradient, under its unit noise."""
    return lambda x: theory.rho_norm(theory.vote_success(stats.norm.cdf(np.abs(x)), workers), x)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_vote_ends_on_the_same_floor_of_half_gamma_d_l_in_its_own_norm(size: int) -> None:
    # near the end f no longer falls, so that γ‖∇f‖_ρ pays for γ²dL̄/2 on average, whatever the number of voters
    norms = descend(TOY, size, 900, seen=rho_norm(size))
    floor = theory.constant_step_bound(0, TOY.smoothness, 0.01, 1)
    assert floor == pytest.approx(5)
    # what f still falls by after step 500, 1 at most, weighs 1/(.01·400) = .25; the noise of the mean about as much
    assert np.mean(norms[500:900]) == pytest.approx(floor, rel=0.1)


def test_the_least_rho_norm_falls_as_one_over_the_root_of_the_steps() -> None:
    small = NoisyQuadratic(numel=65)
    norms = descend(small, 3, 2000, lambda k: 0.3 / np.sqrt(k + 1), seen=rho_norm(3))
    early, late = (min(norms[:count]) * np.sqrt(count) for count in (200, 2000))
    # the floor of γ_k falls as 1/√k, its least value by chance a little faster; a constant step would give √10 = 3.2, and
    # a rate of 1/k .3
    assert late / early == pytest.approx(1, rel=0.4)
    gap = small.value(small.start)
    for count in (20, 200, 2000):
        assert min(norms[:count]) <= theory.decaying_step_bound(gap, small.smoothness, 0.3, count)


@pytest.mark.parametrize("numel", [16, 256])
def test_where_all_is_noise_theorem_1_bounds_the_squared_norm_without_the_dimension(numel: int) -> None:
    # (1/K) Σ E‖g‖₂² <= 3σ√(L(f_0 − f*)/K) for σ_i = σ/√d, L_i = L, and S below 2/√3 throughout; here L = 1, σ² = d
    problem, steps = NoisyQuadratic(numel=numel), 2000
    start = 0.3 * problem.start / np.abs(problem.start).max()
    gap = problem.value(start)
    step = theory.best_step(gap, problem.smoothness, steps)
    points: list[np.ndarray] = []
    descend(problem, 1, steps, lambda k: step, seen=lambda x: points.append(x) or 0.0, start=start)
    assert np.abs(points).max() < theory.CRITICAL_SNR
    assert np.mean(np.sum(np.square(points[:-1]), axis=1)) <= 3 * np.sqrt(numel) * np.sqrt(gap / steps)


def test_one_step_of_theorem_1_descends_as_its_proof_says() -> None:
    # E f(x_1) <= f(x_0) − η‖x_0‖_ρ + η²‖L‖₁/2, and for a quadratic both sides are equal
    step, repeats = 0.05, 400
    problem = NoisyQuadratic(numel=100)
    random = seeding.generator(0, 0, "noise")
    x = problem.start
    after = [problem.value(x - step * np.sign(problem.stochastic_gradient(x, random))) for _ in range(repeats)]
    expected = problem.value(x) - step * rho_norm(1)(x) + step**2 * problem.smoothness.sum() / 2
    assert np.mean(after) == pytest.approx(expected, abs=4 * np.std(after) / np.sqrt(repeats))


# ---- relatives ----


@pytest.mark.parametrize(
    "kind, settings",
    [(torch.optim.Adam, {"betas": (0.0, 0.0), "eps": 0.0}), (torch.optim.RMSprop, {"alpha": 0.0, "eps": 0.0})],
    ids=["Adam", "RMSprop"],
)
def test_without_averaging_adam_and_rmsprop_are_signsgd(kind: type[torch.optim.Optimizer], settings: dict) -> None:
    gradients = torch.from_numpy(seeding.generator(0, 0, "g").standard_normal((50, 65))).float()

    def run(make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> torch.Tensor:
        x = nn.Parameter(torch.ones(65))
        optimizer = make([x])
        for gradient in gradients:
            x.grad = gradient.clone()
            optimizer.step()
        return x.detach()

    (signs,) = simulate(1, lambda comm: run(lambda x: SignSGD(x, lr=0.01, comm=comm)))
    others = run(lambda x: kind(x, lr=0.01, **settings))
    torch.testing.assert_close(signs, others, rtol=0, atol=50 * 2e-7)  # 50 steps, each rounded near 1
