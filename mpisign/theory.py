"""The mathematics of sign descent that can be computed or measured: bounds, norms, vote probabilities, noise statistics.

Letters, as in the papers: g is the true gradient, σ the standard deviation of a coordinate's noise, S = |g|/σ its
signal-to-noise ratio, ρ the probability that a stochastic gradient has the true sign, M the number of workers, d that of
coordinates, L_i the smoothness of coordinate i. Arguments of type ArrayLike may have any shapes that broadcast; all is
float64.

Sources: P1 is Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019 (majority vote), P3 is Safaryan, Richtárik 2021.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

CRITICAL_SNR = 2 / np.sqrt(3.0)
"""S where the two branches of Lemma 1 meet, about 1.1547. Source: P1."""

# ---- how often one worker is wrong -------------------------------------------------------------------------------


def lemma1_bound(snr: npt.ArrayLike) -> Values:
    """Bound P(sign g̃ ≠ sign g) for unimodal, symmetric noise.

    2/(9S²) where S > 2/√3, else ½ − S/(2√3), which uniform noise attains. S >= 0; inf gives 0. Source: P1, Lemma 1.

    >>> [round(float(bound), 5) for bound in lemma1_bound([0.5, 3.0])]
    [0.35566, 0.02469]
    """
    ratio = _nonnegative("snr", snr)
    high = 2 / (9 * np.maximum(ratio, CRITICAL_SNR) ** 2)
    low = 0.5 - np.minimum(ratio, CRITICAL_SNR) / (2 * np.sqrt(3.0))
    return np.asarray(np.where(ratio > CRITICAL_SNR, high, low))


def cantelli_bound(snr: npt.ArrayLike) -> Values:
    """Bound P(sign g̃ ≠ sign g) for noise of any shape: 1/(1 + S²), which some two-point noise attains. Source: P1."""
    return np.asarray(1 / (1 + _nonnegative("snr", snr) ** 2))


def success_bound(g: npt.ArrayLike, sigma: npt.ArrayLike) -> Values:
    """Bound ρ from below for unimodal, symmetric noise: ½ + ½|g|/(|g| + √3σ).

    Where g = 0 it is ½, whatever σ. Source: P3, Lemma 1.
    """
    return 0.5 + 0.5 * _signal_share(g, sigma)


def l1_failure_bound(g: npt.ArrayLike, sigma: npt.ArrayLike) -> Values:
    """Bound 1 − ρ from above, by one minus `success_bound`: weaker than `lemma1_bound`, but one formula for all S."""
    return 0.5 - 0.5 * _signal_share(g, sigma)


def batch_success_bound(noise_ratio: npt.ArrayLike, batch: int) -> Values:
    """Bound ρ of the mean of `batch` samples from below, for noise of any shape: 1 − c/τ.

    c = `noise_ratio` bounds σ²/g², τ = `batch`; above ½ once τ > 2c. Source: P3, Lemma 2 (Chebyshev's inequality).
    """
    return 1 - _nonnegative("noise_ratio", noise_ratio) / _at_least_one("batch", batch)


def sufficient_batch(g: npt.ArrayLike, sigma: npt.ArrayLike, third: npt.ArrayLike) -> Values:
    """Return 2·min(σ²/g², ν³/(|g|σ²)): batches larger than that have ρ > ½, for noise of any shape.

    ν³ = `third` is the third absolute central moment of one sample, σ > 0; inf where g = 0. Source: P3, Lemma 3.
    """
    size, square = np.abs(np.asarray(g, np.float64)), _nonnegative("sigma", sigma) ** 2
    with np.errstate(divide="ignore"):
        return np.asarray(2 * np.minimum(square / size**2, _nonnegative("third", third) / (size * square)))


# ---- norms ---------------------------------------------------------------------------------------------------------


def rho_norm(rho: npt.ArrayLike, g: npt.ArrayLike) -> float:
    """Return Σ(2ρ_i − 1)|g_i|: what a step of signSGD descends by, to first order and per unit of step size.

    No norm in the strict sense, and negative where signs are wrong more often than right. Source: P3.
    """
    return float(np.sum((2 * _probability("rho", rho) - 1) * np.abs(np.asarray(g, np.float64))))


def l12_norm(g: npt.ArrayLike, sigma: npt.ArrayLike) -> float:
    """Return Σ g²/(|g| + √3σ), a lower bound of the ρ-norm for unimodal, symmetric noise; 0 where g = 0. Source: P3."""
    return float(np.sum(np.abs(np.asarray(g, np.float64)) * _signal_share(g, sigma)))


def mixed_norm(g: npt.ArrayLike, sigma: npt.ArrayLike) -> float:
    """Return Σ|g_i| over the coordinates with S > 2/√3, plus Σ g_i²/σ_i over the others. Source: P1, Theorem 1."""
    size, ratio = np.abs(np.asarray(g, np.float64)), snr(g, sigma)
    return float(np.sum(np.where(ratio > CRITICAL_SNR, size, size * np.minimum(ratio, CRITICAL_SNR))))


# ---- votes ---------------------------------------------------------------------------------------------------------


def vote_success(rho: npt.ArrayLike, workers: int) -> Values:
    """Return ρ_M = I(ρ; l, l): the probability that the vote of M workers is right, half the ties counted as right.

    I is the regularised incomplete beta function, l = floor((M+1)/2). So 2l − 1 and 2l workers are equally good where
    ties move nothing. `rho_norm(vote_success(rho, M), g)` is the ρ_M-norm. Source: P3, algorithm 2.

    >>> [round(float(2 * vote_success(0.7, workers) - 1), 4) for workers in (1, 2, 3, 4)]
    [0.4, 0.4, 0.568, 0.568]
    """
    from scipy.special import betainc  # type: ignore[import-untyped]

    half = (_at_least_one("workers", workers) + 1) // 2
    return np.asarray(betainc(half, half, _probability("rho", rho)), np.float64)


def exponential_bound(rho: npt.ArrayLike, workers: int) -> Values:
    """Bound 2ρ_M − 1 from below: 1 − exp(−(2ρ−1)²·l), for ρ >= ½, l = floor((M+1)/2).

    With the least ρ_i of all coordinates, it times ‖g‖₁ bounds the ρ_M-norm. Source: P3, algorithm 2.
    """
    half = (_at_least_one("workers", workers) + 1) // 2
    return -np.expm1(-((2 * _probability("rho", rho) - 1) ** 2) * half)


def vote_failure(wrong: npt.ArrayLike, workers: int, inverting: int = 0) -> Values:
    """Return the probability that a coordinate's vote is wrong or tied, exactly.

    The number of right votes is a sum of independent bits, so its distribution is a convolution: O(M²) a coordinate.

    Args:
        wrong: the probability that one stochastic gradient has the wrong sign, any shape; the result has the same.
        workers: M, those that invert included.
        inverting: how many of them send the opposite of their sign.
    """
    miss = _probability("wrong", wrong)
    _check_inverting(workers, inverting)
    counts = np.zeros((workers + 1, *miss.shape))  # counts[k]: the probability of k right votes
    counts[0] = 1
    for worker in range(workers):
        right = miss if worker < inverting else 1 - miss
        counts[1:] = counts[1:] * (1 - right) + counts[:-1] * right
        counts[0] *= 1 - right
    return np.asarray(counts[: workers // 2 + 1].sum(axis=0))


def vote_failure_bound(wrong: npt.ArrayLike, workers: int, inverting: int = 0) -> Values:
    """Bound `vote_failure` by ½√(p(1−p)) / (√M (p−½)(1−2α)), for p = 1 − wrong > ½ and α = inverting/M < ½.

    From Cantelli's inequality for the number of right votes. It may exceed 1, and says nothing then. Source: the step
    behind P1's Theorem 2.
    """
    miss = _probability("wrong", wrong)
    if not (miss < 0.5).all():
        raise ValueError(f"wrong must be below ½ for the bound to hold; got {miss.max()}")
    share = _honest_lead(workers, inverting)
    return np.asarray(0.5 * np.sqrt(miss * (1 - miss)) / (np.sqrt(workers) * (0.5 - miss) * share))


def vote_failure_snr_bound(snr: npt.ArrayLike, workers: int, inverting: int = 0) -> Values:
    """Bound `vote_failure` by 1/((1−2α)√M·S), for unimodal, symmetric noise and α = inverting/M < ½; inf where S = 0.

    Weaker than `vote_failure_bound`, but needs no more than S. Source: the step behind P1's Theorem 2.

    >>> round(float(vote_failure_snr_bound(1.0, 7, inverting=3)), 2)
    2.65
    """
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (_honest_lead(workers, inverting) * np.sqrt(workers) * _nonnegative("snr", snr)))


# ---- convergence ---------------------------------------------------------------------------------------------------


def best_step(gap: float, smoothness: npt.ArrayLike, steps: int) -> float:
    """Return η = √(gap/(‖L‖₁K)), the step size of P1's Theorems 1 and 2; gap is f(x_0) − f*, K is `steps`."""
    return float(np.sqrt(gap / (_total(smoothness) * _at_least_one("steps", steps))))


def small_batch_bound(gap: float, smoothness: npt.ArrayLike, steps: int) -> float:
    """Bound the mean over K steps of E `mixed_norm` with batches of 1 and `best_step`: 3√(‖L‖₁·gap/K).

    The derivation gives (3/2)√3 ≈ 2.598 in place of 3. Source: P1, Theorem 1.
    """
    return float(3 * np.sqrt(_total(smoothness) * gap / _at_least_one("steps", steps)))


def large_batch_bound(
    gap: float, smoothness: npt.ArrayLike, sigma: npt.ArrayLike, steps: int, workers: int, inverting: int = 0
) -> float:
    """Bound the mean over K steps of E‖g‖₁ with batches of K, a vote and `best_step`.

    (2/√K)·[‖σ‖₁/((1−2α)√M) + √(‖L‖₁·gap)], with α = inverting/M < ½ and `sigma` that of one sample. Source: P1, Theorem 2.
    """
    noise = _total(sigma) / (_honest_lead(workers, inverting) * np.sqrt(workers))
    return float(2 / np.sqrt(_at_least_one("steps", steps)) * (noise + np.sqrt(_total(smoothness) * gap)))


def constant_step_bound(gap: float, smoothness: npt.ArrayLike, step: float, steps: int) -> float:
    """Bound the mean over K steps of E‖g‖_ρ with a constant step size γ: gap/(γK) + γdL̄/2. Source: P3, algorithm 1.

    The second summand is the floor that remains for ever.
    """
    return gap / (step * _at_least_one("steps", steps)) + step * _total(smoothness) / 2


def decaying_step_bound(gap: float, smoothness: npt.ArrayLike, step: float, steps: int) -> float:
    """Bound the least E‖g‖_ρ of K steps with step sizes γ_k = γ_0/√(k+1), `step` being γ_0.

    [gap/γ_0 + γ_0dL̄]/√K + (γ_0dL̄/2)·log K/√K. Source: P3, algorithm 1.
    """
    total, root = _total(smoothness), np.sqrt(_at_least_one("steps", steps))
    return float((gap / step + step * total) / root + step * total / 2 * np.log(steps) / root)


# ---- what is measured ----------------------------------------------------------------------------------------------


class SuccessProbabilities(NamedTuple):
    """Measured ρ and its standard error, each float64 of the gradient's shape."""

    rho: Values
    standard_error: Values


def success_probabilities(
    sample: Callable[[], npt.NDArray[np.floating]], true_gradient: npt.ArrayLike, draws: int
) -> SuccessProbabilities:
    """Measure ρ_i by `draws` >= 1 calls of `sample`, independent stochastic gradients at the point of `true_gradient`.

    A sample that is 0 or NaN where g is not is a failure. Where g = 0, ρ is the share of samples that are 0, which no
    ρ-norm sees. The standard error is that of (k+1)/(n+2), k successes of n draws, so that it is never 0.
    """
    truth = np.asarray(true_gradient, np.float64)
    successes = np.zeros(truth.shape, np.int64)
    for _ in range(_at_least_one("draws", draws)):
        drawn = sample()
        if drawn.shape != truth.shape:
            raise ValueError(f"sample() has shape {drawn.shape}, but true_gradient {truth.shape}: give equal shapes")
        successes += np.sign(drawn) == np.sign(truth)
    smoothed = (successes + 1) / (draws + 2)
    return SuccessProbabilities(successes / draws, np.sqrt(smoothed * (1 - smoothed) / draws))


class Moments:
    """Mean and variance of a stream of equally shaped arrays, in one pass and without storing them.

    mean ← mean + (x − mean)/n, squares ← squares + (x − old mean)(x − new mean). Source: Welford 1962.

    >>> moments = Moments(1)
    >>> for value in (1.0, 2.0, 6.0):
    ...     moments.add(np.array([value]))
    >>> moments.count, float(moments.mean[0]), float(moments.variance[0])
    (3, 3.0, 7.0)
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.count = 0
        self.mean: Values = np.zeros(shape)
        self._squares: Values = np.zeros(shape)

    def add(self, values: npt.NDArray[np.floating]) -> None:
        """Count one more array; a NaN poisons its coordinate for good."""
        if values.shape != self.mean.shape:
            raise ValueError(f"values have shape {values.shape}, but these moments {self.mean.shape}")
        self.count += 1
        before = values - self.mean
        self.mean += before / self.count
        self._squares += before * (values - self.mean)

    @property
    def variance(self) -> Values:
        """The unbiased sample variance (divisor n − 1); ValueError below two arrays."""
        if self.count < 2:
            raise ValueError(f"a variance needs at least 2 arrays, got {self.count}")
        return self._squares / (self.count - 1)

    @property
    def std(self) -> Values:
        """The root of the variance."""
        return np.sqrt(self.variance)


def snr(mean: npt.ArrayLike, std: npt.ArrayLike) -> Values:
    """Return S = |mean|/std; inf without noise, and 0 where the mean is 0 (also without noise: an unused coordinate)."""
    size, spread = np.broadcast_arrays(np.abs(np.asarray(mean, np.float64)), _nonnegative("std", std))
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(size, spread, out=np.zeros(size.shape), where=size != 0))


def share_above_critical(snr: npt.ArrayLike) -> float:
    """Return the share of coordinates with S > 2/√3, whose signs converge as fast as they can; 0 of none at all."""
    ratio = np.asarray(snr, np.float64)
    return float(np.mean(ratio > CRITICAL_SNR)) if ratio.size else 0.0


def asymmetry(samples: npt.ArrayLike) -> Values:
    """Return (mean − median)/std along axis 0, float64[n, …] -> float64[…]: 0 for symmetric noise, never outside [−1, 1].

    Unlike the third moment it bears heavy tails. For n Gaussian samples its standard error is about 0.756/√n. NaN where
    a coordinate never varies. Source: Hotelling and Solomons 1932.
    """
    centered, varies = _centered(samples)
    deviation = np.where(varies, centered.std(axis=0), np.nan)
    return np.asarray(-np.median(centered, axis=0) / deviation)


def unimodality(samples: npt.ArrayLike) -> Values:
    """Return the folding statistic along axis 0, float64[n, …] -> float64[…]: at least 1 speaks for a single mode.

    φ = 4·Var|x − s|/Var x with the pivot s = ½·Cov(x, x²)/Var x: folding a distribution of two heaps at s takes most of
    its variance away. Two points give 0, uniform noise 1, Gaussian 1.45, Laplace 2. A sign, no proof: a narrow heap on
    a wide one is not seen. NaN where a coordinate never varies. Source: Siffer, Fouque, Termier, Largouët 2018.
    """
    x, varies = _centered(samples)
    variance = np.where(varies, x.var(axis=0), np.nan)
    pivot = 0.5 * np.mean(x**3, axis=0) / variance  # Cov(x, x²) of a centred x
    return np.asarray(4 * np.abs(x - pivot).var(axis=0) / variance)


# ---- private -------------------------------------------------------------------------------------------------------


def _signal_share(g: npt.ArrayLike, sigma: npt.ArrayLike) -> Values:
    """|g|/(|g| + √3σ), 0 where g = 0."""
    size, spread = np.broadcast_arrays(np.abs(np.asarray(g, np.float64)), _nonnegative("sigma", sigma))
    return np.asarray(np.divide(size, size + np.sqrt(3.0) * spread, out=np.zeros(size.shape), where=size != 0))


def _centered(samples: npt.ArrayLike) -> tuple[Values, npt.NDArray[np.bool_]]:
    """The samples less their mean, and which coordinates vary at all."""
    x = np.asarray(samples, np.float64)
    if x.ndim == 0 or len(x) < 2:
        raise ValueError(f"need at least 2 samples along axis 0, got an array of shape {x.shape}")
    return x - x.mean(axis=0), (x != x[0]).any(axis=0)


def _nonnegative(name: str, value: npt.ArrayLike) -> Values:
    array = np.asarray(value, np.float64)
    if not (array >= 0).all():  # NaN fails too
        raise ValueError(f"{name} must be 0 or more everywhere; the least is {array.min()}")
    return array


def _probability(name: str, value: npt.ArrayLike) -> Values:
    array = np.asarray(value, np.float64)
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} must be a probability everywhere; got {array.min()} to {array.max()}")
    return array


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be 1 or more; got {value}")
    return value


def _check_inverting(workers: int, inverting: int) -> None:
    if not 0 <= inverting <= _at_least_one("workers", workers):
        raise ValueError(f"inverting must be 0 to {workers}, the number of workers; got {inverting}")


def _honest_lead(workers: int, inverting: int) -> float:
    """1 − 2α, positive."""
    _check_inverting(workers, inverting)
    if 2 * inverting >= workers:
        raise ValueError(f"{inverting} of {workers} workers invert: the bound needs fewer than half")
    return 1 - 2 * inverting / workers


def _total(values: npt.ArrayLike) -> float:
    return float(np.sum(np.abs(np.asarray(values, np.float64))))
