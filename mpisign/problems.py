"""Small objectives with known answers, in plain NumPy: where sign methods shine, and where they fail.

Every problem has f (`value`), ∇f (`gradient`), an unbiased `stochastic_gradient`, a `start` and the `optimum`, all in
float64. Where `worker` matters the problem says so; elsewhere all workers share one objective.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from . import seeding

Values = npt.NDArray[np.float64]


class Problem(Protocol):
    """What every problem offers. d is the number of coordinates."""

    @property
    def start(self) -> Values:
        """float64[d], where runs begin."""

    @property
    def optimum(self) -> Values:
        """float64[d], where f is least."""

    def value(self, x: Values) -> float:
        """Return f(x)."""

    def gradient(self, x: Values) -> Values:
        """Return ∇f(x), float64[d]."""

    def stochastic_gradient(self, x: Values, generator: np.random.Generator, worker: int = 0) -> Values:
        """Draw a worker's stochastic gradient at x, float64[d]."""


@dataclass(frozen=True)
class NoisyQuadratic:
    """f = ½‖x‖² with Gaussian noise of standard deviation `noise` on the first `noisy` coordinates (None: on all).

    By default the toy problem of Bernstein et al. 2019, figure 1: 1000 coordinates, unit noise. The start is drawn from
    N(0, I) by `seed`. Every L_i is 1.
    """

    numel: int = 1000
    noise: float = 1.0
    noisy: int | None = None
    seed: int = 0

    @property
    def start(self) -> Values:
        """float64[d], standard normal."""
        return seeding.generator(self.seed, seeding.SHARED, "start").standard_normal(self.numel)

    @property
    def optimum(self) -> Values:
        """The origin."""
        return np.zeros(self.numel)

    @property
    def smoothness(self) -> Values:
        """L_i, float64[d]."""
        return np.ones(self.numel)

    def value(self, x: Values) -> float:
        """Return ½‖x‖²."""
        return 0.5 * float(x @ x)

    def gradient(self, x: Values) -> Values:
        """Return x."""
        return x.copy()

    def stochastic_gradient(self, x: Values, generator: np.random.Generator, worker: int = 0) -> Values:
        """Return x plus fresh noise."""
        drawn = x.copy()
        drawn[: self.noisy] += self.noise * generator.standard_normal(len(drawn[: self.noisy]))
        return drawn


def sparse_noise(seed: int = 0) -> NoisyQuadratic:
    """Return the quadratic with 100 coordinates, of which only coordinate 0 has noise, with standard deviation 100.

    SGD must take small steps for the sake of one coordinate, signSGD need not. Their runs: 10⁴ steps, 10 repeats, step
    size 1e-3 for SGD and 1e-2 for signSGD. Source: Bernstein et al. 2018, the toy problem of their code.
    """
    return NoisyQuadratic(numel=100, noise=100.0, noisy=1, seed=seed)


@dataclass(frozen=True)
class TwoVectors:
    """f = ½[⟨a1,x⟩² + ⟨a2,x⟩²], a1 = (1+ε, −1+ε), a2 = (−1+ε, 1+ε): signSGD never leaves the line x1 + x2 = 2.

    A stochastic gradient is 2⟨a_i,x⟩a_i. On one node i is drawn anew each time; `distributed`, worker 0 has a1 for ever
    and worker 1 has a2, both without noise, and tied coordinates of their vote must stay. Either way all signs are
    parallel to (1, −1), so that x1 + x2 is conserved. Source: Safaryan and Richtárik 2021, after Karimireddy et al. 2019.

    Args:
        epsilon: ε in (0, 1).
        distributed: whether each worker keeps a vector of its own.
    """

    epsilon: float = 0.5
    distributed: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must lie strictly between 0 and 1; got {self.epsilon}")

    @property
    def vectors(self) -> Values:
        """The rows a1 and a2, float64[2, 2]."""
        return np.array([[1, -1], [-1, 1]]) + self.epsilon

    @property
    def start(self) -> Values:
        """(2, 0), on the line."""
        return np.array([2.0, 0.0])

    @property
    def optimum(self) -> Values:
        """The origin."""
        return np.zeros(2)

    def value(self, x: Values) -> float:
        """Return ½[⟨a1,x⟩² + ⟨a2,x⟩²]."""
        return 0.5 * float(np.sum((self.vectors @ x) ** 2))

    def gradient(self, x: Values) -> Values:
        """Return ⟨a1,x⟩a1 + ⟨a2,x⟩a2."""
        return np.asarray((self.vectors @ x) @ self.vectors)

    def stochastic_gradient(self, x: Values, generator: np.random.Generator, worker: int = 0) -> Values:
        """Return 2⟨a_i,x⟩a_i: of a random i, or of the worker's own if distributed."""
        a = self.vectors[_checked(worker, 2) if self.distributed else generator.integers(2)]
        return np.asarray(2 * (a @ x) * a)


@dataclass(frozen=True)
class Rosenbrock:
    """f = Σ_{i<d} [100(x_{i+1} − x_i²)² + (1 − x_i)²]; a stochastic gradient is d − 1 times the mean of random summands'.

    Args:
        numel: d >= 2.
        batch: how many summands a stochastic gradient draws, with replacement.
    """

    numel: int = 10
    batch: int = 1

    def __post_init__(self) -> None:
        if self.numel < 2 or self.batch < 1:
            raise ValueError(f"numel must be 2 or more and batch 1 or more; got {self.numel} and {self.batch}")

    @property
    def start(self) -> Values:
        """(−1.2, 1, −1.2, 1, …), as is usual."""
        return np.where(np.arange(self.numel) % 2 == 0, -1.2, 1.0)

    @property
    def optimum(self) -> Values:
        """(1, …, 1), where f = 0."""
        return np.ones(self.numel)

    def value(self, x: Values) -> float:
        """Return f(x)."""
        return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))

    def gradient(self, x: Values) -> Values:
        """Return ∇f(x)."""
        return self._weighted(x, np.ones(self.numel - 1))

    def stochastic_gradient(self, x: Values, generator: np.random.Generator, worker: int = 0) -> Values:
        """Return (d−1)/batch times the sum of `batch` random summands' gradients."""
        summands = generator.integers(self.numel - 1, size=self.batch)
        counts = np.bincount(summands, minlength=self.numel - 1)
        return self._weighted(x, counts * ((self.numel - 1) / self.batch))

    def _weighted(self, x: Values, weights: npt.NDArray[np.floating]) -> Values:
        """The gradient of Σ weights_i × summand_i."""
        residual = weights * (x[1:] - x[:-1] ** 2)
        result = np.zeros(self.numel)
        result[1:] += 200 * residual
        result[:-1] += -400 * residual * x[:-1] - 2 * weights * (1 - x[:-1])
        return result


@dataclass(frozen=True)
class HeterogeneousQuadratics:
    """f = mean of f_n = ½‖x − c_n‖², worker n knowing f_n only: methods that average go to the mean of the c_n.

    Stochastic sign descent goes to `geometric_median(c)` instead, and a majority vote to each coordinate's median: signs
    have a bias under heterogeneous data. The default centers show the first: median (.0288, .0481), mean (1, .0333).

    Args:
        centers: c_n, one tuple of d numbers for each worker.
        noise: the standard deviation of Gaussian noise on every coordinate.
    """

    centers: tuple[tuple[float, ...], ...] = ((0.0, 0.0), (0.0, 0.1), (3.0, 0.0))
    noise: float = 0.0

    def __post_init__(self) -> None:
        shapes = {np.shape(center) for center in self.centers}
        if len(shapes) != 1 or len(shapes.pop()) != 1:
            raise ValueError(
                f"centers must be at least one tuple, and all of one length, such as ((1.0,), (2.0,)); got {self.centers}"
            )

    @property
    def start(self) -> Values:
        """(1, …, 1)."""
        return np.ones(len(self.centers[0]))

    @property
    def optimum(self) -> Values:
        """The mean of the centers."""
        return np.asarray(np.mean(np.array(self.centers), axis=0))

    def value(self, x: Values) -> float:
        """Return the mean of all workers' ½‖x − c_n‖²."""
        return 0.5 * float(np.mean(np.sum((x - np.array(self.centers)) ** 2, axis=1)))

    def gradient(self, x: Values) -> Values:
        """Return x less the mean of the centers."""
        return x - self.optimum

    def stochastic_gradient(self, x: Values, generator: np.random.Generator, worker: int = 0) -> Values:
        """Return x − c_worker plus fresh noise: unbiased for the worker's own f_n, not for f."""
        center = np.array(self.centers[_checked(worker, len(self.centers))])
        return np.asarray(x - center + self.noise * generator.standard_normal(len(x)))


def geometric_median(points: npt.ArrayLike, tolerance: float = 1e-12, iterations: int = 100_000) -> Values:
    """Return the point whose distances to float64[n, d] have the least sum.

    Weiszfeld's iteration: the mean weighted by inverse distances; where it meets one of the points, the step of Vardi
    and Zhang 2000, which leaves the point unless it is the median. Ends when a step is shorter than `tolerance` times
    the points' extent, or after `iterations` with RuntimeError.
    """
    p = np.asarray(points, np.float64)
    if p.ndim != 2 or len(p) == 0:
        raise ValueError(f"points must be at least one row of an [n, d] array; got shape {p.shape}")
    extent = float(np.linalg.norm(np.ptp(p, axis=0)))
    here = p.mean(axis=0)
    for _ in range(iterations):
        there = _weiszfeld(p, here)
        if np.linalg.norm(there - here) <= tolerance * extent:
            return there
        here = there
    raise RuntimeError(f"no geometric median after {iterations} iterations: allow more, or a larger tolerance")


def _weiszfeld(points: Values, here: Values) -> Values:
    """One step of the iteration of Vardi and Zhang."""
    distances = np.linalg.norm(points - here, axis=1)
    away = distances > 0
    if not away.any():
        return here
    weights = 1 / distances[away]
    target: Values = weights @ points[away] / weights.sum()
    if away.all():
        return target
    pull = float(np.linalg.norm(weights @ (points[away] - here)))
    held = int(np.count_nonzero(~away))
    return here + max(0.0, 1 - held / pull) * (target - here) if pull > 0 else here


def _checked(worker: int, workers: int) -> int:
    if worker not in range(workers):
        raise ValueError(f"this problem has workers 0 to {workers - 1}; got worker {worker}")
    return worker
