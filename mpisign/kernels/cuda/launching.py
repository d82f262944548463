"""How loops are started: tables on the device, and torch's current stream. Nothing here waits for the device."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import cuda
from torch import Tensor

from ..layout import Layout
from ..tally import addresses_of
from .memory import SIMULATED, THREADS
from .signs import TILE


def launch(kernel: Any, blocks: int, device: torch.device, *arguments: int) -> None:
    """Start a kernel of `blocks` blocks of THREADS threads on torch's current stream; none starts nothing."""
    if blocks == 0:
        return
    if SIMULATED:
        kernel[blocks, THREADS](*map(int, arguments))
        return
    with cuda.gpus[device.index]:
        _configured(kernel, blocks, _stream(device), device)(*map(int, arguments))


@lru_cache(maxsize=1024)
def _configured(kernel: Any, blocks: int, stream: int, device: torch.device) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few blocks: a small model fills no GPU, and that is no fault
        return kernel[blocks, THREADS, cuda.external_stream(stream) if stream else 0]


def upload(device: torch.device, *parts: npt.NDArray[Any]) -> Tensor:
    """Return the parts end to end in the device's memory, uint8[…]; what has the same content is copied there only once."""
    return _uploaded(b"".join(part.tobytes() for part in parts), device, _stream(device))


def table(
    layout: Layout, device: torch.device, tensors: Sequence[Tensor | None], *factors: npt.NDArray[np.float32]
) -> Tensor:
    """Return what kernels know of parameters: addresses, numels, starts, and factors, float32[P] or float32[F, P] each."""
    insist_on(device, *tensors)
    wanted = (np.asarray(factor, np.float32) for factor in factors)
    return upload(device, addresses_of(tensors), layout.numels, layout.starts, *wanted)


def insist_on(device: torch.device, *tensors: Tensor | None) -> None:
    """Raise ValueError where a tensor lies on another device: a kernel would take its address for one of its own memory."""
    own = device.index if device.type == "cuda" else -1
    for tensor in tensors:
        if tensor is not None and tensor.get_device() != own:
            raise ValueError(
                f"a kernel on {device} was given a tensor on {tensor.device}: move all of them to one device"
            )


def coordinate_tiles(layout: Layout, device: torch.device) -> tuple[int, Tensor]:
    """Return the tiles of the kernels that treat coordinates: how many, and int64[T, 2], parameter and first word."""
    return _tiles(layout.numels.tobytes(), TILE, device, _stream(device))


def word_tiles(layout: Layout, device: torch.device) -> tuple[int, Tensor]:
    """Return the tiles of the kernels that treat whole words, as `coordinate_tiles` does."""
    return _tiles(layout.numels.tobytes(), THREADS, device, _stream(device))


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


# The caches are by stream: only on its own does a copy surely come before what reads it.


@lru_cache(maxsize=512)
def _uploaded(content: bytes, device: torch.device, stream: int) -> Tensor:
    host = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.clone()


@lru_cache(maxsize=512)
def _tiles(numels: bytes, words: int, device: torch.device, stream: int) -> tuple[int, Tensor]:
    lengths = (np.frombuffer(numels, np.int64) + 63) // 64
    counts = np.maximum(-(-lengths // words), 1)  # at least one a parameter: somebody must note who votes on it
    parameters = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(parameters)) - np.repeat(np.cumsum(counts) - counts, counts)
    return len(parameters), _uploaded(np.stack([parameters, words * within], axis=1).tobytes(), device, stream)
