"""The contract of an attack."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms.weights import checksum
from ..attacks import Attack
from ..overhearing import BallotAttack, GradientAttack
from .checks import RANKS, STEPS, require
from .odd_model import give_gradients, odd_model


def check_attack(make: Callable[[int, Sequence[int], int, int], Attack], ranks: Sequence[int] = RANKS) -> None:
    """Check an attack, `make(rank, ranks, size, seed)`: what it says has the shapes and dtypes of the gradients, or is None.

    The same seed gives the same bits, and neither its input nor torch's global generator changes; so for labels, and for
    what it says after it has heard the honest workers' gradients, or their ballots.
    """
    for size in ranks:
        liars = tuple(range(max(size // 2, 1), size))  # somebody is honest
        for rank in liars:
            first, second = (_lies(make(rank, liars, size, 3)) for _ in range(2))
            require(first == second, f"rank {rank} of {size} says something else in a second run with the same seed")


def _lies(attack: Attack) -> list[Any]:
    """Let it speak for some steps, the last without gradients; return what it said, as numbers to compare."""
    chance, said = torch.get_rng_state(), list[Any]()
    for step in range(STEPS):
        model = odd_model()
        give_gradients(model, attack.rank, step, list(model) if step == STEPS - 1 else ["single"])
        gradients = [p.grad for p in model.values()]
        before = [g if g is None else g.clone() for g in gradients]
        heard = _honest_gradients(attack, step)
        if isinstance(attack, GradientAttack):
            attack.hear(heard)
        lies = attack(gradients, step)
        same = all(_same(*pair) for pair in zip(heard, _honest_gradients(attack, step), strict=True))
        require(same, f"step {step}: the attack changed what it heard")
        require(_same(gradients, before), f"step {step}: the attack changed its input")
        require(len(lies) == len(model), f"step {step}: {len(lies)} gradients for {len(model)} parameters")
        for (name, p), lie in zip(model.items(), lies, strict=True):
            fits = lie is None or (lie.shape == p.shape and lie.dtype == p.dtype and not lie.requires_grad)
            require(fits, f"step {step}: {name} is {p.dtype}{list(p.shape)}, but the attack says {lie}")
        said += [None if lie is None else checksum([lie]) for lie in lies]
    y = torch.arange(10)
    labels = attack.labels(y, 10)
    require(y.tolist() == list(range(10)), "the attack changed its input, the labels")
    fits = labels.dtype == y.dtype and labels.shape == y.shape and bool(((labels >= 0) & (labels < 10)).all())
    require(fits, f"wanted labels int64[10] from 0 to 9, but the attack says {labels}")
    if isinstance(attack, BallotAttack):
        said += _ballots(attack)
    require(torch.equal(chance, torch.get_rng_state()), "the attack draws from torch's global generator")
    return [*said, labels.tolist()]


def _honest_gradients(attack: Attack, step: int) -> list[list[Tensor | None]]:
    """What the honest workers say: all but one parameter, the first of them with NaN in another, nobody at the last step."""
    honest: list[list[Tensor | None]] = []
    for rank in sorted(set(range(attack.size)) - set(attack.ranks)):
        model = odd_model()
        give_gradients(model, rank, step, list(model) if step == STEPS - 1 else ["single"])
        matrix = model["matrix"].grad
        if matrix is not None and rank == 0:
            matrix[0, 0] = float("nan")
        honest.append([p.grad for p in model.values()])
    return honest


def _ballots(attack: BallotAttack) -> list[Any]:
    """Let it see honest ballots of several lengths, with abstentions; return its own."""
    random, said = np.random.default_rng(1), list[Any]()
    for step in range(STEPS):
        for numel in (0, 1, 63, 64, 65):
            honest = random.integers(-1, 2, (attack.size - len(attack.ranks), numel)).astype(np.int8)
            before = honest.copy()
            votes = attack.votes(honest, step)
            require(np.array_equal(honest, before), f"step {step}: the attack changed its input, the honest ballots")
            fits = isinstance(votes, np.ndarray) and votes.dtype == np.int8 and votes.shape == (numel,)
            require(
                fits and bool((abs(votes) == 1).all()),
                f"wanted votes int8[{numel}] of -1 and 1, but the attack says {votes}",
            )
            said.append(votes.tolist())
    return said


def _same(tensors: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> bool:
    return all(
        a is b if a is None or b is None else checksum([a]) == checksum([b])
        for a, b in zip(tensors, others, strict=True)
    )
