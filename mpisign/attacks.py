"""What a Byzantine worker does to the labels and gradients it holds; no algorithm knows of it.

An attack comes between backward and step, so that every algorithm meets the same ones. A new one is a subclass of `Attack`
in a file of one's own: `--attack my_file.py:Mine`. Those that know what the others say are in `overhearing.py`.
"""

import abc
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from . import seeding
from .config import parse_byzantine
from .errors import ConfigError

Gradients = list[Tensor | None]
"""One entry a parameter; None where the worker has no gradient, and abstains."""

Overheard = Literal["nothing", "gradients", "ballots"]


class Attack(abc.ABC):
    """One worker's lie, step after step.

    Args:
        rank: the worker.
        ranks: all Byzantine workers, this one included.
        size: the number of all workers.
        seed: names the stream of chance.

    Attributes:
        colludes: whether all Byzantine workers draw alike, from one shared stream, or each from its own.
        overhears: what it knows of the honest workers before it speaks: "gradients" (`overhearing.GradientAttack`), or
            "ballots" (`overhearing.BallotAttack`).
    """

    colludes: ClassVar[bool] = False
    overhears: ClassVar[Overheard] = "nothing"

    def __init__(self, rank: int, ranks: Sequence[int], size: int, seed: int = 0) -> None:
        self.rank, self.ranks, self.size, self.seed = rank, tuple(ranks), size, seed

    @abc.abstractmethod
    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return what the worker says instead: of the same shapes and dtypes, or None. The input stays as it is."""

    def labels(self, y: Tensor, classes: int) -> Tensor:
        """Return the labels that the worker learns from instead, int64[n] in 0..classes−1. The input stays as it is."""
        return y

    def state(self) -> dict[str, Any]:
        """Return what later lies depend on beside gradients, step and seed."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - most have nothing to restore
        """Take up what `state` gave."""

    def chance(self, step: int) -> torch.Generator:
        """Return a step's own CPU generator: the same whatever was drawn before, and whatever the device."""
        return seeding.torch_generator(self.seed, seeding.SHARED if self.colludes else self.rank, f"attack {step}")


class Honest(Attack):
    """No attack: what all other workers do."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return the gradients themselves."""
        return list(gradients)


class Invert(Attack):
    """Says −g: the worst that a worker can do to a vote without knowing the others' ballots (Bernstein et al. 2019)."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return −g."""
        return _each(gradients, torch.neg)


class Random(Attack):
    """Says N(0, 1), drawn anew at each step."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return noise of the gradients' shapes, whatever they are."""
        chance = self.chance(step)
        return _each(gradients, lambda g: torch.randn(g.shape, generator=chance).to(g))


class Constant(Attack):
    """Pushes every weight down, for ever."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return ones."""
        return _each(gradients, torch.ones_like)


class Silent(Attack):
    """Never votes."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return None for each parameter."""
        return [None] * len(gradients)


class Stale(Attack):
    """Says the first gradient that it had of each parameter, for ever."""

    def __init__(self, rank: int, ranks: Sequence[int], size: int, seed: int = 0) -> None:
        super().__init__(rank, ranks, size, seed)
        self._first: Gradients = []

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return copies of the first gradients, also where there is none now."""
        self._first = self._first or [None] * len(gradients)
        for index, gradient in enumerate(gradients):
            if gradient is not None and self._first[index] is None:
                self._first[index] = gradient.clone()
        return _each(self._first, torch.clone)  # clones: a caller may scale in place what it gets

    def state(self) -> dict[str, Any]:
        """Return the first gradients."""
        return {"first": list(self._first)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the first gradients."""
        self._first = list(state.get("first", []))  # none, where the state is that of an honest worker


class Blind(Attack):
    """Says g ∘ w with a vector w chosen before g is seen: random signs, or what a subclass's `factors` returns.

    The general class of adversaries that a vote withstands in Bernstein et al. (2019). A positive w is harmless to a
    vote, w = −1 is `Invert`.
    """

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return g ∘ w."""
        chance = self.chance(step)
        return _each(gradients, lambda g: g * self.factors(g.shape, chance).to(g))

    def factors(self, shape: torch.Size, chance: torch.Generator) -> Tensor:
        """Return w for one parameter, float32[shape], drawn from `chance`; called in the parameters' order."""
        return 1.0 - 2.0 * torch.randint(2, shape, generator=chance)


class NaN(Attack):
    """Says NaN: what a worker with a broken device sends."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return NaN."""
        return _each(gradients, lambda g: torch.full_like(g, math.nan))


class LabelFlip(Attack):
    """Learns from wrong labels, and says honestly what follows from them."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return the gradients themselves."""
        return list(gradients)

    def labels(self, y: Tensor, classes: int) -> Tensor:
        """Return classes − 1 − y."""
        return classes - 1 - y


def byzantine_ranks(spec: str, size: int, hit_server: bool = False) -> tuple[int, ...]:
    """Return the ranks that `--byzantine` names among `size`, lowest first: of a number or a share, the last ones.

    The last, so that the server's own worker, rank 0, is hit last; `hit_server` takes the first ones, as the paper's code
    does. Errors: ConfigError for ranks that don't exist, a share that rounds to nobody, or where nobody honest is left.

    >>> byzantine_ranks("3", 7), byzantine_ranks("3", 7, hit_server=True), byzantine_ranks("ranks:1,3", 7)
    ((4, 5, 6), (0, 1, 2), (1, 3))
    """
    wanted = parse_byzantine(spec)
    if isinstance(wanted, tuple):
        if wanted[-1] >= size:
            raise ConfigError(f"--byzantine {spec}: no rank {wanted[-1]} here; wanted ranks from 0 to {size - 1}")
        ranks = wanted
    else:
        count = math.floor(wanted * size) if isinstance(wanted, Fraction) else wanted
        if wanted and not count:
            raise ConfigError(
                f"--byzantine {spec}: of {size} ranks that is nobody, since a share is rounded down; wanted at least "
                f"one, as in --byzantine 1"
            )
        ranks = tuple(range(min(count, size)) if hit_server else range(size - min(count, size), size))
    if len(ranks) == size:
        raise ConfigError(
            f"--byzantine {spec}: nobody of {size} ranks is honest; wanted at most {size - 1}: start more ranks, or name "
            f"fewer"
        )
    return ranks


def _each(gradients: Gradients, lie: Callable[[Tensor], Tensor]) -> Gradients:
    return [None if gradient is None else lie(gradient) for gradient in gradients]
