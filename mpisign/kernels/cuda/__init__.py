"""The kernels for tensors on a GPU: the functions of `mpisign.kernels`, with the same bits, by numba.cuda.

Work is queued on torch's current stream, one launch a call however many tensors there are, and nothing waits for the device:
what the CPU's functions return as a number comes as a tensor on the device, and whoever reads its value waits. Tables of
addresses and factors go there by asynchronous copies from pinned memory, and only when they have changed.

Tensors are handed over by address, as on the CPU: `__cuda_array_interface__` refuses parameters that require a gradient, and
an object for each of hundreds of tensors is what one launch a bucket is to avoid. Whoever uses a tensor on another stream
than the one on which it was allocated must tell torch so (`Tensor.record_stream`).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..layout import Layout
from . import counting, norms, signs
from .launching import coordinate_tiles, insist_on, launch, table, upload, word_tiles
from .memory import THREADS
from .tally import AnyVerdict, Landed, Tally, Verdict

__all__ = [
    "KERNELS",
    "Landed",
    "Tally",
    "Verdict",
    "descend",
    "disagreement",
    "l1_norms",
    "l2_norm",
    "residuals",
    "scaled_sign_means",
    "sign_ballot",
    "sign_sums",
    "stochastic_sign_ballot",
    "unpack",
    "warm_up",
]

Floats = npt.NDArray[np.float32]

KERNELS = (
    signs.momentum_signs,
    signs.stochastic_signs,
    signs.descend,
    signs.unpack,
    signs.residuals,
    signs.sign_sums,
    counting.add_ballots,
    counting.add_counters,
    counting.majority,
    counting.disagreement,
    counting.scaled_sign_means,
    norms.power_sums,
    norms.norm,
)
"""All that runs on a device."""

_ZERO_RULES = {"plus": signs.PLUS, "coin": signs.COIN, "minus": signs.MINUS}


def sign_ballot(
    layout: Layout,
    gradients: Sequence[Tensor | None],
    momentum: Tensor | None,
    betas: Floats,
    gammas: Floats,
    zero: str,
    key: int,
    ballot: Tensor,
    kept: Floats,
) -> Tensor:
    """As `kernels.sign_ballot`; returns bool[] on the device."""
    device, interpolates = ballot.device, kept.shape[1] > 0
    insist_on(device, momentum)
    blocks, tiles = coordinate_tiles(layout, device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    _write_presence(layout, gradients, ballot)
    launch(
        signs.momentum_signs,
        blocks,
        device,
        tiles.data_ptr(),
        table(layout, device, gradients, betas, gammas, *([kept] if interpolates else [])).data_ptr(),
        len(layout.numels),
        0 if momentum is None else momentum.data_ptr(),
        int(interpolates),
        _ZERO_RULES[zero],
        key,
        layout.offset,
        ballot.data_ptr(),
        finite.data_ptr(),
        ballot.data_ptr() + 8 * layout.header,
    )
    return finite


def stochastic_sign_ballot(
    layout: Layout, vectors: Sequence[Tensor | None], norm: float | Tensor, key: int, ballot: Tensor
) -> Tensor:
    """As `kernels.stochastic_sign_ballot`; `norm` may be float32[] on the device; returns bool[] on the device."""
    device = ballot.device
    length = norm if isinstance(norm, Tensor) else torch.full((), norm, dtype=torch.float32, device=device)
    insist_on(device, length)
    votes = torch.full((), any(vector is not None for vector in vectors), dtype=torch.bool, device=device)
    blocks, tiles = coordinate_tiles(layout, device)
    _write_presence(layout, vectors, ballot)
    launch(
        signs.stochastic_signs,
        blocks,
        device,
        tiles.data_ptr(),
        table(layout, device, vectors).data_ptr(),
        len(layout.numels),
        length.data_ptr(),
        key,
        layout.offset,
        ballot.data_ptr(),
        votes.data_ptr(),
        ballot.data_ptr() + 8 * layout.header,
    )
    return votes


def descend(parameters: Sequence[Tensor | None], verdict: AnyVerdict, steps: Floats, decays: Floats) -> None:
    """As `kernels.descend`; a verdict in the CPU's memory is copied first, which waits unless its message is pinned.

    A pinned message must stay as it is until the copy is done.
    """
    device = next((x.device for x in parameters if x is not None), None)
    if device is None:
        return
    layout, message = verdict.layout, verdict.message.to(device, non_blocking=True)
    blocks, tiles = coordinate_tiles(layout, device)
    launch(
        signs.descend,
        blocks,
        device,
        tiles.data_ptr(),
        table(layout, device, parameters, steps, decays).data_ptr(),
        len(layout.numels),
        message.data_ptr(),
        *_words_of(verdict, message),
    )


def unpack(verdict: AnyVerdict, p: int, device: torch.device | None = None) -> Tensor:
    """As `kernels.unpack`; the result lies on `device`, by default that of the verdict."""
    message = verdict.message if device is None else verdict.message.to(device, non_blocking=True)
    numel, start = int(verdict.layout.numels[p]), 8 * int(verdict.layout.starts[p])
    words, ties = _words_of(verdict, message)
    out = torch.empty(numel, device=message.device)
    blocks = -(-numel // THREADS)
    launch(signs.unpack, blocks, out.device, words + start, ties + start if ties else 0, numel, out.data_ptr())
    return out


def disagreement(ballot: Tensor, verdict: AnyVerdict) -> tuple[Tensor, Tensor]:
    """As `kernels.disagreement`; returns two int64[] on the device."""
    layout, device = verdict.layout, ballot.device
    message = verdict.message.to(device, non_blocking=True)
    blocks, tiles = word_tiles(layout, device)
    out = torch.zeros(2, dtype=torch.int64, device=device)
    launch(
        counting.disagreement,
        blocks,
        device,
        tiles.data_ptr(),
        table(layout, device, [None] * len(layout.numels)).data_ptr(),
        len(layout.numels),
        ballot.data_ptr(),
        layout.header,
        _words_of(verdict, message)[0],
        out.data_ptr(),
    )
    return out[0], out[1]


def l1_norms(layout: Layout, vectors: Sequence[Tensor | None]) -> Tensor:
    """As `kernels.l1_norms`; returns float64[P] on the device."""
    return _power_sums(layout, vectors, squared=False)


def l2_norm(layout: Layout, vectors: Sequence[Tensor | None]) -> Tensor:
    """As `kernels.l2_norm`; returns float32[] on the device."""
    sums = _power_sums(layout, vectors, squared=True)
    out = torch.empty((), dtype=torch.float32, device=sums.device)
    launch(norms.norm, 1, sums.device, sums.data_ptr(), len(sums), out.data_ptr())
    return out


def sign_sums(layout: Layout, planes: Tensor, voters: Tensor, sums: Tensor) -> None:
    """As `kernels.sign_sums`; all tensors on the device, and the rows of `planes` contiguous."""
    insist_on(sums.device, planes, voters)
    blocks, tiles = coordinate_tiles(layout, sums.device)
    launch(
        signs.sign_sums,
        blocks,
        sums.device,
        tiles.data_ptr(),
        table(layout, sums.device, [None] * len(layout.numels)).data_ptr(),
        len(layout.numels),
        planes.data_ptr(),
        planes.stride(0),
        len(planes),
        voters.data_ptr(),
        sums.data_ptr(),
    )


def residuals(layout: Layout, moved: Tensor, scales: Floats, ballot: Tensor, errors: Tensor) -> None:
    """As `kernels.residuals`; scales in the CPU's memory."""
    insist_on(moved.device, ballot, errors)
    blocks, tiles = coordinate_tiles(layout, moved.device)
    launch(
        signs.residuals,
        blocks,
        moved.device,
        tiles.data_ptr(),
        table(layout, moved.device, [None] * len(layout.numels), scales).data_ptr(),
        len(layout.numels),
        moved.data_ptr(),
        ballot.data_ptr(),
        ballot.data_ptr() + 8 * layout.header,
        errors.data_ptr(),
    )


def scaled_sign_means(layout: Layout, ballots: Tensor, scales: Floats, means: Tensor) -> Tensor:
    """As `kernels.scaled_sign_means`; scales in the CPU's memory; returns bool[n, P] on the device."""
    device, parameters = means.device, len(layout.numels)
    insist_on(device, ballots)
    blocks, tiles = coordinate_tiles(layout, device)
    present = torch.empty((len(ballots), parameters), dtype=torch.bool, device=device)
    launch(
        counting.scaled_sign_means,
        blocks,
        device,
        tiles.data_ptr(),
        table(layout, device, [None] * parameters).data_ptr(),
        parameters,
        ballots.data_ptr(),
        len(ballots),
        ballots.stride(0),
        upload(device, scales).data_ptr(),
        upload(device, np.cumsum(layout.numels) - layout.numels).data_ptr(),
        present.data_ptr(),
        means.data_ptr(),
    )
    return present


def warm_up(device: torch.device | str) -> None:
    """Compile all kernels, so that no step has to wait for it."""
    layout, one = Layout([65]), np.ones(1, np.float32)
    vector, momentum = torch.zeros(65, device=device), torch.zeros(128, device=device)
    ballot = torch.zeros(layout.message, dtype=torch.uint64).to(device)
    tally, verdict = Tally(layout, 2, device), Verdict(layout, "abstain", device)
    sign_ballot(layout, [vector], momentum, one, one, "coin", 0, ballot, np.empty((2, 0), np.float32))
    tally.add([ballot])
    tally.merge(tally.counters().clone(), tally.voters, 1, tally.count)
    tally.decide(0, verdict)
    descend([vector], verdict, one, one)
    unpack(verdict, 0)
    disagreement(ballot, verdict)
    stochastic_sign_ballot(layout, [vector], l2_norm(layout, [vector]), 0, ballot)
    sign_sums(layout, tally.counters(), tally.voters, momentum)
    residuals(layout, momentum, one, ballot, momentum)
    scaled_sign_means(layout, ballot.view(1, -1), one.reshape(1, 1), vector)


def _write_presence(layout: Layout, tensors: Sequence[Tensor | None], ballot: Tensor) -> None:
    """Write into a ballot's header which tensors are there."""
    header = np.zeros(layout.header, np.uint64)
    layout.write_presence(np.array([tensor is not None for tensor in tensors], np.bool_), header)
    ballot[: layout.header].view(torch.int64).copy_(upload(ballot.device, header).view(torch.int64))


def _words_of(verdict: AnyVerdict, message: Tensor) -> tuple[int, int]:
    """Return the addresses of a verdict's words and ties in its message, or in a copy of it; 0 for no ties."""
    words = message.data_ptr() + 8 * (verdict.layout.header + 1)
    return words, words + 8 * verdict.layout.words if verdict.tie == "abstain" else 0


def _power_sums(layout: Layout, vectors: Sequence[Tensor | None], squared: bool) -> Tensor:
    device = next(vector.device for vector in vectors if vector is not None)
    sums = torch.empty(len(layout.numels), dtype=torch.float64, device=device)
    addresses = table(layout, device, vectors)
    launch(norms.power_sums, len(sums), device, addresses.data_ptr(), len(sums), int(squared), sums.data_ptr())
    return sums
