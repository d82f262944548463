"""Random least-squares problems of adjustable heterogeneity, and two probes: what the relay methods are measured with."""

import math

import torch
from torch import Tensor

from . import seeding


class RandomQuadratics:
    """f(x) = (1/n) Σ_i ‖A_i x − b_i‖², worker i knowing only A_i and b_i; a worker's gradient is A_iᵀ(A_i x − b_i).

    The gradient has no factor 2, as in the paper's code. `heterogeneity` is ζ² = mean of ‖∇f_i(x*)‖², met to 1e-5 by
    bisection of the workers' distance from each other; 0 makes all workers agree on the optimum. The same seed gives the
    same problem as the paper's code does (torch's generator, float64).

    Args:
        workers: n.
        numel: d.
        heterogeneity: ζ² >= 0.
        distance: ‖x*‖, from the start, which is 0.
        mu: the smallest singular value of each A_i, in (0, 1); they are equally spaced up to 1, so that A_iᵀA_i has
            eigenvalues mu² … 1. None: Gaussian A_i with largest singular value 1.
        noise: σ; a stochastic gradient has noise N(0, σ²/d) on each coordinate.
        seed: names the problem, and the noise.

    Attributes:
        a: float64[n, d, d].
        b: float64[n, d].
        optimum: x*, float64[d].
        least: f(x*).

    Source: Vogels et al. 2021, appendix B.4.
    """

    def __init__(
        self,
        workers: int,
        numel: int = 10,
        *,
        heterogeneity: float = 1.0,
        distance: float = 1.0,
        mu: float | None = None,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if workers < 1 or numel < 1:
            raise ValueError(f"workers and numel must be at least 1; got {workers} and {numel}")
        if workers == 1 and heterogeneity:
            raise ValueError("one worker differs from nobody: heterogeneity must be 0")
        if heterogeneity < 0 or distance < 0 or noise < 0:
            raise ValueError(
                f"heterogeneity, distance and noise must be at least 0; got {heterogeneity}, {distance}, {noise}"
            )
        if mu is not None and not 0 < mu < 1:
            raise ValueError(f"mu must lie strictly between 0 and 1; got {mu}")
        self.workers, self.numel, self.noise, self.seed = workers, numel, noise, seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # the paper's stream, not one of seeding's
            self.a = _with_spectrum(torch.randn(workers, numel, numel, dtype=torch.float64), mu)
            offsets = torch.randn(workers, numel, dtype=torch.float64)
            direction = torch.randn(numel, dtype=torch.float64)
        self.b = self._apart(offsets, heterogeneity) + self.a @ (direction * (distance / direction.norm()))
        self.optimum = self._minimizer(self.b)
        self.least = self.value(self.optimum)

    def value(self, x: Tensor) -> float:
        """Return f(x), x float64[d]."""
        return float(((self.a @ x - self.b) ** 2).sum() / self.workers)

    def suboptimality(self, models: Tensor) -> float:
        """Return f(mean of the workers' models) − f(x*); models float64[n, d]."""
        return self.value(models.mean(0)) - self.least

    def gradient(self, worker: int, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a worker's gradient at x, float64[d], with fresh noise where a generator is given."""
        gradient: Tensor = self.a[worker].T @ (self.a[worker] @ x - self.b[worker])
        if generator is not None and self.noise:
            drawn = torch.randn(self.numel, dtype=torch.float64, generator=generator)
            gradient += self.noise / math.sqrt(self.numel) * drawn
        return gradient

    def gradients(self, models: Tensor) -> Tensor:
        """Return all workers' gradients without noise, each at its own model: float64[n, d] -> float64[n, d]."""
        residuals = torch.einsum("nij,nj->ni", self.a, models) - self.b
        return torch.einsum("nij,ni->nj", self.a, residuals)

    def generator(self, worker: int) -> torch.Generator:
        """Return the stream of a worker's noise."""
        return seeding.torch_generator(self.seed, worker, "gradient noise")

    def _minimizer(self, b: Tensor) -> Tensor:
        a = self.a.reshape(-1, self.numel)
        minimizer: Tensor = torch.linalg.solve(a.T @ a, a.T @ b.reshape(-1))
        return minimizer

    def _apart(self, offsets: Tensor, heterogeneity: float) -> Tensor:
        """float64[n, d]: b_i with joint optimum 0 and the wanted ζ², worker i's own optimum along its offset."""
        b, found = torch.zeros_like(offsets), 0.0
        scale, low, high = 1.0, 0.0, math.inf
        while abs(found - heterogeneity) > 1e-5:
            b = torch.einsum("nij,nj->ni", self.a, offsets * scale)
            b = b - self.a @ self._minimizer(b)
            found = float((torch.einsum("nij,ni->nj", self.a, b) ** 2).sum(1).mean())
            low, high = (scale, high) if found < heterogeneity else (low, scale)
            scale = 2 * scale if high == math.inf else (low + high) / 2
        return b


def _with_spectrum(a: Tensor, mu: float | None) -> Tensor:
    """float64[n, d, d] with singular values mu … 1, or scaled so that the largest of each is 1."""
    u, singular, v = torch.linalg.svd(a)
    wanted = singular / singular[:, :1] if mu is None else torch.linspace(mu, 1, a.shape[-1], dtype=a.dtype)
    scaled: Tensor = u * wanted.unsqueeze(-2) @ v
    return scaled


class Delivery:
    """A probe of delays: all stand at 0, and at step 0 one worker alone takes a step of +n.

    Methods without delay end at 1, RelaySGD at 1/κ, whatever the source: a history of 1 + mean delay models shares it.

    Args:
        workers: n.
        source: the worker with the step.
    """

    def __init__(self, workers: int, source: int = 0) -> None:
        if source not in range(workers):
            raise ValueError(f"the source must be one of 0 to {workers - 1}; got {source}")
        self.workers, self.source = workers, source

    def gradient(self, worker: int, step: int, lr: float = 1.0) -> float:
        """Return the gradient whose step with this lr is +n at the source at step 0, and 0 elsewhere."""
        return -self.workers / lr if (worker, step) == (self.source, 0) else 0.0


def mean_samples(worker: int, steps: int, seed: int = 0) -> Tensor:
    """float64[steps]: what a worker draws from N(1, 1) for mean estimation. Source: Vogels et al. 2021, algorithm 5."""
    return 1 + torch.randn(steps, dtype=torch.float64, generator=seeding.torch_generator(seed, worker, "samples"))
