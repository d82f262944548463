"""Weights as bits: the same on all ranks, and a checksum to see whether they are."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..comm import as_comm
from ..errors import DisagreementError


def broadcast_buffers(model: torch.nn.Module, comm: Any = None) -> None:
    """Give every rank rank 0's buffers (such as BatchNorm's running statistics), which training does not synchronise."""
    ranks, buffers = as_comm(comm), list(model.buffers())
    form = [(tuple(buffer.shape), str(buffer.dtype)) for buffer in buffers]
    number = int.from_bytes(hashlib.blake2b(repr(form).encode(), digest_size=7).digest(), "little")
    ranks.insist(number, DisagreementError(f"rank {ranks.rank}: ranks have different buffers; here {form}"))
    with torch.no_grad():
        broadcast(buffers, ranks)


def checksum(tensors: Iterable[Tensor]) -> int:
    """Return 56 bits that depend on every bit of the tensors (BLAKE2b)."""
    digest = hashlib.blake2b(digest_size=7)
    for tensor in tensors:
        digest.update(_bytes(tensor.detach()).cpu().numpy().data)
    return int.from_bytes(digest.digest(), "little")


def _bytes(tensor: Tensor) -> Tensor:
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)  # a single element may keep any stride


def broadcast(tensors: list[Tensor], comm: Any) -> None:
    """Copy rank 0's tensors to all ranks, in one message."""
    if not tensors or comm.size == 1:
        return
    flat = torch.cat([_bytes(tensor).cpu() for tensor in tensors])
    comm.bcast(flat)
    for tensor, block in zip(tensors, torch.split(flat, [t.nbytes for t in tensors]), strict=True):
        tensor.copy_(block.clone().view(tensor.dtype).view(tensor.shape))
