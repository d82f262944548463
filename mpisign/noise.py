"""The gradient noise of a live model, coordinate by coordinate, measured by drawing minibatches at one point.

    noise = measure(model, task.loss, resample(x, y, batch_size=128), samples=200)
    noise.success, noise.snr, noise.rho_norm(M=7), noise.histogram(coordinate)

Letters as in `mpisign.theory`: g is the true gradient, σ its noise, S = |g|/σ, ρ the probability of a right sign.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import seeding, theory
from .dip import dip, largest_usual_dip

Values = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Loss = Callable[..., Tensor]
"""(model, *batch) -> the mean loss of a batch, float [] with its graph."""

KEPT_BYTES = 256 * 2**20
"""What the samples may take that are kept for histograms, unless the caller says which coordinates to keep."""


class Histogram(NamedTuple):
    """A coordinate's samples in bins: float64[bins + 1] edges, float64[bins] densities whose area is 1."""

    edges: Values
    density: Values


@dataclass(frozen=True, eq=False)
class GradientNoise:
    """What was seen of d coordinates in n samples.

    Attributes:
        count: n.
        gradient: g, float64[d]: the true gradient where it was given, else the samples' mean.
        deviation: σ, float64[d], with divisor n − 1.
        success: ρ, float64[d]: the share of samples whose sign is that of g. A sample of 0 fails where g isn't 0; where g
            is 0, ρ is the share of zeros, which no norm sees.
        kept: the coordinates whose samples were kept, int64[k], ascending.
        samples: float32[n, k].
        shapes: name and shape of each parameter, in the order of the coordinates.
    """

    count: int
    gradient: Values
    deviation: Values
    success: Values
    kept: Numbers
    samples: npt.NDArray[np.float32]
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(default=())

    @property
    def snr(self) -> Values:
        """S, float64[d]; 0 where g = 0, inf where g ≠ 0 without noise."""
        return theory.snr(self.gradient, self.deviation)

    @property
    def success_error(self) -> Values:
        """The standard error of ρ, float64[d]: that of (k+1)/(n+2) for k successes, never 0."""
        smoothed = (self.success * self.count + 1) / (self.count + 2)
        return np.sqrt(smoothed * (1 - smoothed) / self.count)

    @property
    def promised_success(self) -> Values:
        """1 − Lemma 1's bound of failure, float64[d]: what ρ can't be below if noise is symmetric with one mode."""
        return 1 - theory.lemma1_bound(self.snr)

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Where g ≠ 0, bool[d]: the others are weights that no sample uses, and have no sign to be right about."""
        return np.asarray(self.gradient != 0)

    @property
    def share_mostly_right(self) -> float:
        """The share of used coordinates with ρ > ½, as sign descent's convergence wants of all; NaN where none is used."""
        return _share(self.success[self.used] > 0.5)

    @property
    def share_above_critical(self) -> float:
        """The share of used coordinates with S > 2/√3; NaN where none is used."""
        return _share(self.snr[self.used] > theory.CRITICAL_SNR)

    def share_below_promise(self, errors: float = 3.0) -> float:
        """Return the share of used coordinates with ρ so many standard errors below Lemma 1's: their noise breaks its
        assumption. NaN where none is used.
        """
        short = self.success + errors * self.success_error < self.promised_success
        return _share(short[self.used])

    def rho_norm(self, M: int = 1) -> float:
        """Return the ρ_M-norm of g, Σ(2ρ_M,i − 1)|g_i|: what a step of M >= 1 voters descends by, a unit of step size."""
        return theory.rho_norm(theory.vote_success(self.success, M), self.gradient)

    def name(self, coordinate: int) -> str:
        """Return the parameter and index of a coordinate, as in "1.weight[7, 400]"; ValueError unless in 0..d−1."""
        if not 0 <= coordinate < len(self.gradient):
            raise ValueError(f"no coordinate {coordinate}: there are 0 to {len(self.gradient) - 1}")
        first = 0
        for name, shape in self.shapes:
            numel = int(np.prod(shape, dtype=np.int64))
            if coordinate < first + numel:
                index = ", ".join(str(place) for place in np.unravel_index(coordinate - first, shape)) if shape else ""
                return f"{name}[{index}]" if index else name
            first += numel
        return f"coordinate {coordinate}"

    def of(self, coordinate: int) -> npt.NDArray[np.float32]:
        """Return the samples of a coordinate, float32[n]; ValueError where they weren't kept."""
        place = int(np.searchsorted(self.kept, coordinate))
        if place == len(self.kept) or self.kept[place] != coordinate:
            raise ValueError(
                f"the samples of coordinate {coordinate} were not kept, only those of {len(self.kept)} others, `kept`: "
                f"measure again with keep=[{coordinate}]"
            )
        return self.samples[:, place]

    def histogram(self, coordinate: int, bins: int = 30) -> Histogram:
        """Return a kept coordinate's samples in so many equal bins from the least to the largest."""
        density, edges = np.histogram(self.of(coordinate).astype(np.float64), bins=bins, density=True)
        return Histogram(edges, density)

    def dips(self) -> Values:
        """Return Hartigan's dip of each kept coordinate, float64[k]: about a millisecond each."""
        return np.array([dip(column) for column in self.samples.T])

    def share_of_several_modes(self, share: float = 0.95) -> float:
        """Return the share of kept coordinates that vary and dip more than `share` of all uniform noise would.

        That much below 1 − `share` is what noise with one mode gives. NaN where nothing varies.
        """
        varies = np.ptp(self.samples, axis=0) > 0
        return _share(self.dips()[varies] > largest_usual_dip(self.count, share))

    def asymmetry(self) -> Values:
        """Return (mean − median)/σ of each kept coordinate, float64[k]: see `theory.asymmetry`."""
        return theory.asymmetry(self.samples)


def measure(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Any],
    samples: int = 200,
    truth: Iterable[Any] = (),
    keep: Sequence[int] | None = None,
    seed: int = 0,
) -> GradientNoise:
    """Measure the noise of a model's gradient at its weights, from the gradients of so many batches.

    The model leaves as it came: weights, `p.grad` and buffers. What batches and forward passes draw from torch's global
    CPU generator (a shuffling loader, dropout) comes from `seed`, and leaves no trace there.

    Args:
        model: its parameters that require gradients are the d coordinates, one after the other.
        loss: (model, *batch) -> the batch's mean loss; a task's `loss`, for one.
        batches: at least `samples` batches, each a tuple, or one thing; they should be drawn independently: see `resample`.
        samples: n >= 2.
        truth: batches of equal size whose mean gradient is the true one: the whole data set. Without them the samples'
            own mean stands in, and ρ comes out too large where there is little signal: by 1/(π√n) where there is none.
        keep: the coordinates whose samples are kept, of 4n bytes each; by default all, or evenly spaced ones if all took
            more than 256 MiB.
        seed: names the stream of chance.

    Errors: ValueError for too few batches, samples or parameters, for a coordinate that doesn't exist, and for a gradient
    that is not finite.
    """
    if samples < 2:
        raise ValueError(f"samples must be 2 or more for a variance; got {samples}")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    numel = sum(p.numel() for p in parameters.values())
    if numel == 0:
        raise ValueError("the model has no parameters that require gradients: there is nothing to measure")
    kept = _kept(keep, numel, samples)
    source = _Gradients(model, loss, list(parameters.values()))
    with seeding.torch_seeded(seed, seeding.SHARED, "true gradient"):
        exact = source.mean(truth)
    moments, positive, negative = theory.Moments(numel), np.zeros(numel, np.int64), np.zeros(numel, np.int64)
    found = np.empty((samples, len(kept)), np.float32)
    with seeding.torch_seeded(seed, seeding.SHARED, "noise"):
        for count, gradient in enumerate(source.each(batches, samples)):
            moments.add(gradient)
            positive += gradient > 0
            negative += gradient < 0
            found[count] = gradient[kept]
    if moments.count < samples:
        raise ValueError(f"batches ended after {moments.count}, but samples is {samples}: give more, see `resample`")
    true = moments.mean if exact is None else exact
    right = np.where(true > 0, positive, np.where(true < 0, negative, samples - positive - negative))
    shapes = tuple((name, tuple(p.shape)) for name, p in parameters.items())
    return GradientNoise(samples, true, moments.std, right / samples, kept, found, shapes)


def resample(*tensors: Tensor, batch_size: int, seed: int = 0) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches without end, each of `batch_size` rows drawn with replacement from all tensors alike.

    So they are independent, unlike those of an epoch. ValueError unless the tensors have equally many rows, at least one.
    """
    if len({len(tensor) for tensor in tensors}) != 1 or len(tensors[0]) == 0 or batch_size < 1:
        raise ValueError(
            f"wanted tensors with equally many rows and a batch_size of 1 or more; got {[len(t) for t in tensors]} rows "
            f"and {batch_size}"
        )
    random = seeding.generator(seed, seeding.SHARED, "batches for noise")
    return _resampled(tensors, batch_size, random)


def _resampled(tensors: tuple[Tensor, ...], size: int, random: np.random.Generator) -> Iterator[tuple[Tensor, ...]]:
    while True:
        rows = torch.from_numpy(random.integers(len(tensors[0]), size=size))
        yield tuple(tensor[rows] for tensor in tensors)


class _Gradients:
    """The gradients of a model's loss as flat float64 vectors, taken without a trace in the model."""

    def __init__(self, model: nn.Module, loss: Loss, parameters: list[nn.Parameter]) -> None:
        self._model, self._loss, self._parameters = model, loss, parameters

    def each(self, batches: Iterable[Any], most: int) -> Iterator[Values]:
        """Yield the gradients of the first `most` batches."""
        for number, batch in zip(range(most), batches, strict=False):  # the range first: no batch is drawn in vain
            gradient = self._of(batch)
            if not np.isfinite(gradient).all():
                raise ValueError(f"the gradient of batch {number} is not finite: its moments would not be either")
            yield gradient

    def mean(self, batches: Iterable[Any]) -> Values | None:
        """The mean gradient over all batches, None where there are none."""
        total, count = np.zeros(sum(p.numel() for p in self._parameters)), 0
        for batch in batches:
            total += self._of(batch)
            count += 1
        return total / count if count else None

    def _of(self, batch: Any) -> Values:
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        inputs = batch if isinstance(batch, tuple | list) else (batch,)
        with torch.enable_grad():
            loss = self._loss(self._model, *inputs)
            # not backward(): p.grad is the user's
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for buffer, before in buffers:
            buffer.copy_(before)  # a batch norm has counted this batch
        flat = [
            torch.zeros(p.numel()) if gradient is None else gradient.detach().reshape(-1)
            for p, gradient in zip(self._parameters, gradients, strict=True)
        ]
        return torch.cat([part.to("cpu", torch.float64) for part in flat]).numpy()


def _kept(keep: Sequence[int] | None, numel: int, samples: int) -> Numbers:
    """The coordinates to keep, ascending."""
    if keep is None:
        return np.unique(np.linspace(0, numel - 1, min(numel, max(KEPT_BYTES // (4 * samples), 1))).astype(np.int64))
    kept = np.unique(np.asarray(keep, np.int64))
    if len(kept) and not 0 <= kept[0] <= kept[-1] < numel:
        raise ValueError(f"keep: wanted coordinates from 0 to {numel - 1}; got {kept[0]} to {kept[-1]}")
    return kept


def _share(which: npt.NDArray[np.bool_]) -> float:
    return float(np.mean(which)) if which.size else float("nan")
