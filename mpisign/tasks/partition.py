"""Which worker trains on which samples: alike for all, all for each, by class, or unequal by a Dirichlet distribution.

A partition is a function (labels, workers, seed, argument) -> list of int64 index arrays, one a worker, in which every
sample occurs once, or as often as every other. `labels`: integers `[N]`; `workers`: 1 to N; `seed`: >= 0, the same on
all ranks; `argument`: the number after the colon of `--partition name:number`, or None.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import registry, seeding
from ..config import parse_partition
from ..errors import ConfigError

Indices = NDArray[np.int64]

GROUP = 10
"""Workers among whom the Dirichlet distribution deals at a time."""

ATTEMPTS = 10_000
"""Deals of one group before the Dirichlet partition gives up: about two seconds."""


def partition(spec: str, labels: NDArray[np.integer[Any]], workers: int, seed: int) -> list[Indices]:
    """Return the indices of each worker as `spec` deals them: `iid`, `by_class`, `dirichlet:0.1`, `my.py:mine[:1]`.

    Raises ConfigError for a spec that can't be used, more workers than samples, or a function from outside that
    doesn't deal every sample equally often.

    >>> [part.tolist() for part in partition("by_class", np.array([1, 0]), 2, seed=0)]
    [[1], [0]]
    """
    name, argument = parse_partition(spec)
    parts: list[Indices] = [
        np.asarray(part, dtype=np.int64) for part in registry.load("partition", name)(labels, workers, seed, argument)
    ]
    dealt = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    copies = max(len(dealt) // max(len(labels), 1), 1)
    if len(parts) != workers or not np.array_equal(dealt, np.arange(len(labels)).repeat(copies)):
        raise ConfigError(
            f"--partition {spec} gave {len(parts)} parts with {sum(map(len, parts))} indices: wanted {workers} parts "
            f"in which each of 0..{len(labels) - 1} occurs once, or equally often"
        )
    return parts


def iid(labels: NDArray[np.integer[Any]], workers: int, seed: int, argument: float | None = None) -> list[Indices]:
    """Shuffle the samples and deal them evenly: sizes differ by one at most, the first workers have the larger ones."""
    _no_argument("iid", argument)
    _enough(labels, workers)
    return _even(_shuffled(labels, seed), workers)


def shared(labels: NDArray[np.integer[Any]], workers: int, seed: int, argument: float | None = None) -> list[Indices]:
    """Give all samples to every worker, which visits them in an order of its own: one oracle for all, as theory has it.

    Where each worker has a part for good, even an iid one, their gradients differ for good, and liars gain from it.
    """
    _no_argument("shared", argument)
    return [np.arange(len(labels))] * workers


def by_class(labels: NDArray[np.integer[Any]], workers: int, seed: int, argument: float | None = None) -> list[Indices]:
    """Sort the samples by label, shuffled within each class, and cut the row evenly: few classes a worker."""
    _no_argument("by_class", argument)
    _enough(labels, workers)
    order = _shuffled(labels, seed)
    return _even(order[np.argsort(labels[order], kind="stable")], workers)


def dirichlet(
    labels: NDArray[np.integer[Any]], workers: int, seed: int, argument: float | None = None
) -> list[Indices]:
    """Deal each class by proportions drawn from Dirichlet(α, …, α), then even the sizes out; α = `argument` > 0.

    The smaller α, the fewer classes a worker has; large α is nearly iid. The shuffled samples are cut into groups of up
    to 10 workers; in each, a full worker gets no more, and a deal that leaves a worker with less than half of its share
    is drawn again. All are then joined in order and cut evenly, so that classes spill over to the next worker.

    `seed` < 2³² (the paper's runs take the run's seed + 100). The indices are those of the paper's code, unless that
    draws unusable proportions (all on full workers, or NaN): such a deal is drawn again here. Raises ConfigError where
    10,000 deals bring nothing: α is too small for so few classes, or a class has hardly more samples than there are
    workers, since rounding favours the last of them. Source: Vogels et al. (2021), their experiments.
    """
    alpha = _alpha(argument)
    _enough(labels, workers)
    if not 0 <= seed < 2**32:
        raise ConfigError(f"--partition dirichlet: seed {seed}, wanted 0 to 2**32 - 1")
    random = np.random.RandomState(seed)  # the paper's stream
    order = np.arange(len(labels))
    random.shuffle(order)
    cuts = int(GROUP / workers * len(labels)) * np.arange(1, math.ceil(workers / GROUP))
    dealt: list[Indices] = []
    for start, group in zip(range(0, workers, GROUP), np.split(order, cuts), strict=True):
        dealt += _deal(random, labels, group, min(GROUP, workers - start), alpha)
    return _even(np.concatenate(dealt), workers)


def _deal(
    random: np.random.RandomState, labels: NDArray[np.integer[Any]], group: Indices, workers: int, alpha: float
) -> list[Indices]:
    """Indices of a group's workers, of unequal lengths."""
    classes = [group[labels[group] == label] for label in np.unique(labels)]
    counts = _counts(random, [len(members) for members in classes], workers, alpha)
    pieces = [np.split(members, np.cumsum(row)[:-1]) for members, row in zip(classes, counts, strict=True)]
    return [np.concatenate(worker) for worker in zip(*pieces, strict=True)]


def _counts(random: np.random.RandomState, sizes: list[int], workers: int, alpha: float) -> Indices:
    """How many of each class each worker gets, `[classes, workers]`, nobody less than half of an even share."""
    least = int(0.5 * sum(sizes) / workers)
    for _ in range(ATTEMPTS):
        counts = _attempt(random, sizes, workers, alpha)
        if counts.sum() == sum(sizes) and counts.sum(axis=0).min() >= least:
            return counts
    raise ConfigError(
        f"--partition dirichlet:{alpha:g}: {ATTEMPTS} deals, and none gave each of {workers} workers {least} or more "
        f"of {sum(sizes)} samples in {len(sizes)} classes; take fewer workers or another alpha"
    )


def _attempt(random: np.random.RandomState, sizes: list[int], workers: int, alpha: float) -> Indices:
    """One deal, `[classes, workers]`; it stops short of the samples where proportions can't be used."""
    counts = np.zeros((len(sizes), workers), dtype=np.int64)
    held = np.zeros(workers, dtype=np.int64)
    full = sum(sizes) / workers
    for size, row in zip(sizes, counts, strict=True):
        proportions = np.where(held < full, random.dirichlet(np.repeat(alpha, workers)), 0.0)
        total = proportions.sum()
        if not 0 < total < math.inf:  # all on full workers; or NaN, which RandomState draws for small alpha
            break
        cuts = (np.cumsum(proportions / total)[:-1] * size).astype(np.int64)
        row[:] = np.diff(cuts, prepend=0, append=size)
        held += row
    return counts


def _alpha(argument: float | None) -> float:
    if argument is None:
        raise ConfigError("--partition dirichlet: alpha is missing; write for instance dirichlet:0.1")
    if not 0 < argument < math.inf:
        raise ConfigError(f"--partition dirichlet:{argument:g}: wanted a finite alpha over 0, for instance 0.1")
    return argument


def _no_argument(name: str, argument: float | None) -> None:
    if argument is not None:
        raise ConfigError(f"--partition {name}:{argument:g}: {name} takes no number; write --partition {name}")


def _enough(labels: NDArray[np.integer[Any]], workers: int) -> None:
    if labels.ndim != 1 or not 1 <= workers <= len(labels):
        raise ConfigError(
            f"{workers} workers and labels of shape {list(labels.shape)}: wanted labels [N] and 1 to N workers; "
            f"start fewer ranks or bring more data"
        )


def _shuffled(labels: NDArray[np.integer[Any]], seed: int) -> Indices:
    return seeding.generator(seed, seeding.SHARED, "partition").permutation(len(labels)).astype(np.int64)


def _even(order: Indices | Sequence[int], workers: int) -> list[Indices]:
    return np.array_split(np.asarray(order, dtype=np.int64), workers)
