"""The methods of Vogels et al. 2021 with all ranks in one array, told from their formulas: what the optimizers must equal.

Each takes worker gradients `gradients(models)`, the start float64[n, d] and a step size, and yields the models before
step 0, 1, 2, …
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mpisign.topology import Tree

Gradients = Callable[[Tensor], Tensor]


def metropolis_hastings(neighbors: list[tuple[int, ...]], weight: float | None = None) -> Tensor:
    """float64[n, n] with w_ij = 1/(1 + the larger degree), or `weight`."""
    n = len(neighbors)
    w = torch.zeros(n, n, dtype=torch.float64)
    for i, each in enumerate(neighbors):
        for j in each:
            w[i, j] = 1 / (1 + max(len(each), len(neighbors[j]))) if weight is None else weight
        w[i, i] = 1 - w[i].sum()
    return w


def ring(n: int) -> list[tuple[int, ...]]:
    return [tuple({(i - 1) % n, (i + 1) % n}) for i in range(n)]


def delays(tree: Tree, overlapped: bool) -> Tensor:
    """int64[n, n]: d_ij."""
    hops = torch.tensor([[tree.distance(i, j) for j in range(tree.size)] for i in range(tree.size)])
    return hops if overlapped else (hops - 1).clamp(min=0)


def correction(tree: Tree, overlapped: bool) -> float:
    return 1 + float(delays(tree, overlapped).double().mean())


def relay(gradients: Gradients, x: Tensor, lr: float, tree: Tree, overlapped: bool = False) -> Iterator[Tensor]:
    """x_i = (1/n) Σ_j h_j^(t − d_ij), with h = x0 before the start: what Algorithm 1 with x0-fill amounts to."""
    late, n, history = delays(tree, overlapped), len(x), list[Tensor]()
    start = x.clone()
    while True:
        yield x
        history = [x - lr * gradients(x), *history][: int(late.max()) + 1]
        past = torch.stack([*history, *[start] * (int(late.max()) + 1 - len(history))])
        x = past[late, torch.arange(n)[None, :]].mean(1)


def relay_grad(gradients: Gradients, x: Tensor, lr: float, tree: Tree, overlapped: bool = False) -> Iterator[Tensor]:
    late, n, history = delays(tree, overlapped), len(x), list[Tensor]()
    while True:
        yield x
        history = [-lr * gradients(x), *history][: int(late.max()) + 1]
        past = torch.stack([*history, *[torch.zeros_like(x)] * (int(late.max()) + 1 - len(history))])
        x = x + past[late, torch.arange(n)[None, :]].mean(1)


def gossip(gradients: Gradients, x: Tensor, lr: float, w: Tensor) -> Iterator[Tensor]:
    while True:
        yield x
        x = w @ (x - lr * gradients(x))


def d2(gradients: Gradients, x: Tensor, lr: float, w: Tensor) -> Iterator[Tensor]:
    correction = torch.zeros_like(x)
    while True:
        yield x
        u = -lr * gradients(x)
        after = w @ (x + u + correction)
        x, correction = after, after - x - u


def gradient_tracking(gradients: Gradients, x: Tensor, lr: float, w: Tensor) -> Iterator[Tensor]:
    correction = torch.zeros_like(x)
    while True:
        yield x
        u = -lr * gradients(x)
        x, correction = w @ (x + u + correction), w @ (correction + u) - u


def push(gradients: Gradients, x: Tensor, lr: float, rounds: int = 2) -> Iterator[Tensor]:
    number, period = 0, math.ceil(math.log2(len(x)))
    while True:
        yield x
        x = x - lr * gradients(x)
        for _ in range(rounds):
            x = (x + torch.roll(x, 2 ** (number % period), 0)) / 2
            number += 1


def mean(gradients: Gradients, x: Tensor, lr: float) -> Iterator[Tensor]:
    while True:
        yield x
        x = (x - lr * gradients(x)).mean(0, keepdim=True).expand_as(x)
