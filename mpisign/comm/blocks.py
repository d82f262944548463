"""What a message may be, and what reductions make of several."""

import torch
from torch import Tensor

_MOVABLE = (torch.uint64, torch.int64, torch.float32, torch.float64, torch.uint8)
_SUMMABLE = (torch.int64, torch.float32, torch.float64)


def check(block: Tensor) -> None:
    """Raise ValueError or TypeError unless a transport can move a block as it is."""
    if not isinstance(block, Tensor):
        raise TypeError(
            f"a message must be a torch tensor of one dimension, such as torch.tensor([3]); got {type(block).__name__}"
        )
    # MPI would take a strided or bfloat16 tensor, and deliver other numbers
    if block.dim() != 1 or not block.is_contiguous() or block.device.type != "cpu" or block.requires_grad:
        raise ValueError(
            f"a message must be a one-dimensional, contiguous CPU tensor without gradient; got shape "
            f"{tuple(block.shape)}, strides {block.stride()}, on {block.device}: use .detach().contiguous().view(-1)"
        )
    if block.dtype not in _MOVABLE:
        raise TypeError(f"a message must be one of {', '.join(map(str, _MOVABLE))}, not {block.dtype}")


def check_reduction(block: Tensor, op: str) -> None:
    """Raise ValueError or TypeError unless blocks like this one can be reduced by `op`."""
    if op not in ("sum", "min", "max"):
        raise ValueError(f"op must be sum, min or max, got {op!r}")
    if block.dtype not in _SUMMABLE:
        raise TypeError(f"allreduce takes {', '.join(map(str, _SUMMABLE))}, not {block.dtype}")


def check_out(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ValueError unless a result of this shape and type fits into `out`."""
    if tuple(out.shape) != shape or out.dtype != dtype or not out.is_contiguous():
        raise ValueError(f"out must be a contiguous {dtype}{list(shape)}, got {out.dtype}{list(out.shape)}")


def combine(blocks: Tensor, op: str) -> Tensor:
    """[n, k] -> [k]: the sum of the rows in their order, or their minimum or maximum."""
    if op == "min":
        return blocks.amin(0)
    if op == "max":
        return blocks.amax(0)
    total = blocks[0].clone()
    for block in blocks[1:]:
        total += block
    return total
