"""A Byzantine worker's lie between backward and step."""

import torch

from .algorithms.base import DistributedOptimizer, dense_gradient
from .attacks import Attack, Gradients
from .comm import Comm
from .comm.uncounted import uncounted
from .overhearing import GradientAttack


def overhear(comm: Comm, attack: Attack, optimizer: DistributedOptimizer) -> None:
    """Let a Byzantine worker know all honest workers' gradients; collective, and no traffic of the algorithm's.

    Every rank receives all gradients for it, in float32, or float64 where a parameter is.
    """
    parameters = optimizer.parameters
    gradients = [dense_gradient(p, index) for index, p in enumerate(parameters)]
    wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
    there = torch.tensor([gradient is not None for gradient in gradients], dtype=wide)
    said = [(p if g is None else g).detach() for p, g in zip(parameters, gradients, strict=True)]
    flat = [one.reshape(-1).to("cpu", wide) for one in said]
    with uncounted(comm):
        rows = comm.allgather(torch.cat([there, *flat]))
    if not isinstance(attack, GradientAttack):
        return
    sizes = [len(there), *(p.numel() for p in parameters)]
    honest: list[Gradients] = []
    for rank in sorted(set(range(comm.size)) - set(attack.ranks)):
        given, *blocks = torch.split(rows[rank], sizes)
        honest.append(
            [
                block.view(p.shape).to(p.device, p.dtype) if here else None
                for here, block, p in zip(given.tolist(), blocks, parameters, strict=True)
            ]
        )
    attack.hear(honest)


def tamper(attack: Attack, optimizer: DistributedOptimizer) -> None:
    """Replace each p.grad by what the attack says instead."""
    parameters = optimizer.parameters
    for p, said in zip(parameters, attack([p.grad for p in parameters], optimizer.steps_taken), strict=True):
        p.grad = said
