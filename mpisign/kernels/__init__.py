"""What is done to coordinates and bits, on torch tensors; the implementation follows the tensors' device.

The bit layout, stated once: a word is a little-endian uint64; bit j of word i of a parameter is its coordinate 64·i + j
in memory order, 1 means negative (`v < 0`; −0.0 is a zero). It equals `numpy.packbits(v < 0, bitorder="little")`. Padding
bits are 0. A message is the header (bit p: parameter p is voted on), then the words of all parameters (`Layout`).

Ballots, verdicts and tallies are `torch.uint64`; gradients, momentum and parameters `torch.float32`, contiguous.

Tensors on a GPU go to `kernels/cuda/`, which only then is imported: the same bits, queued on torch's current stream. What is
returned as a number then is a tensor on the device, and who reads its value waits for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import cpu
from .layout import Layout
from .tally import Tally, Tie, Verdict, addresses_of

if TYPE_CHECKING:
    from .cuda.tally import AnyVerdict

__all__ = [
    "NOTHING_KEPT",
    "Layout",
    "Tally",
    "Tie",
    "Verdict",
    "Zero",
    "descend",
    "disagreement",
    "l1_norms",
    "l2_norm",
    "residuals",
    "scaled_sign_means",
    "sign_ballot",
    "sign_sums",
    "stochastic_sign_ballot",
    "stream",
    "unpack",
    "warm_up",
]

Zero = Literal["coin", "plus", "minus"]

_ZERO_RULES: dict[Zero, int] = {"plus": cpu.PLUS, "coin": cpu.COIN, "minus": cpu.MINUS}
NOTHING_KEPT = np.empty((2, 0), np.float32)

Floats = npt.NDArray[np.float32]


def stream(key: int, step: int) -> int:
    """Return the key of step number `step` of a stream of coins: 63 bits of its own."""
    return int(cpu.coin(key, step)) >> 1


def sign_ballot(
    layout: Layout,
    gradients: Sequence[Tensor | None],
    momentum: Tensor | None,
    betas: Floats,
    gammas: Floats,
    zero: Zero,
    key: int,
    ballot: Tensor,
    kept: Floats = NOTHING_KEPT,
) -> bool:
    """Write the ballot of the signs of v ← βv + γg, in one pass over the gradients; tell whether all were finite.

    Args:
        layout: P parameters.
        gradients: P tensors float32[numel], or None where there is no gradient: that parameter is not voted on.
        momentum: float32[64 * layout.words], changed in place; None signs the gradients themselves.
        betas: float32[P], one for each parameter.
        gammas: float32[P], one for each parameter; 1 − β in Signum.
        zero: how a v of exactly 0 votes: by a coin of (key, word of the whole layout), plus or minus.
        key: names the stream of coins.
        ballot: uint64[layout.message], written. A parameter with a gradient that is not finite is not voted on, and the
            momentum of the coordinates that are not finite stays as it was.
        kept: float32[2, P]: the signs are those of βv + γg, but v becomes kept[0]·v + kept[1]·g. By default the same.

    Errors: ValueError for numbers of anything that are not the layout's, on the CPU.
    """
    if ballot.is_cuda:
        from . import cuda

        flag = cuda.sign_ballot(layout, gradients, momentum, betas, gammas, zero, key, ballot, kept)
        return cast(bool, flag)
    _check_sizes(layout, gradients, momentum, betas, gammas, ballot)
    message = ballot.numpy()
    present = np.array([gradient is not None for gradient in gradients], np.bool_)
    finite = np.empty(len(gradients), np.bool_)
    cpu.momentum_signs(
        addresses_of(gradients),
        0 if momentum is None else momentum.data_ptr(),
        layout.numels,
        layout.starts,
        betas,
        gammas,
        kept,
        _ZERO_RULES[zero],
        key,
        layout.offset,
        finite,
        message[layout.header :],
    )
    layout.write_presence(present & finite, message[: layout.header])
    return bool(finite.all())


def _check_sizes(
    layout: Layout,
    gradients: Sequence[Tensor | None],
    momentum: Tensor | None,
    betas: Floats,
    gammas: Floats,
    ballot: Tensor,
) -> None:
    """Refuse what a kernel, which knows addresses only, would read or write beyond its end."""
    wanted = layout.numels.tolist()
    if not len(gradients) == np.size(betas) == np.size(gammas) == len(wanted):
        raise ValueError(
            f"a layout of {len(wanted)} parameters wants as many gradients, betas and gammas; got {len(gradients)}, "
            f"{np.size(betas)} and {np.size(gammas)}"
        )
    for p, (gradient, numel) in enumerate(zip(gradients, wanted, strict=True)):
        if gradient is not None and gradient.numel() != numel:
            raise ValueError(f"gradient {p} has {gradient.numel()} numbers, and the layout wants {numel}")
    if momentum is not None and momentum.numel() < 64 * layout.words:
        raise ValueError(f"the momentum has {momentum.numel()} numbers; wanted 64 * layout.words, {64 * layout.words}")
    if ballot.numel() != layout.message:
        raise ValueError(f"the ballot has {ballot.numel()} words; wanted layout.message, {layout.message}")


def descend(parameters: Sequence[Tensor | None], verdict: "AnyVerdict", steps: Floats, decays: Floats) -> None:
    """x ← decay·x − step·verdict in one pass, in place; what is None or was voted on by nobody stays as it is.

    Args:
        parameters: P tensors float32[numel].
        verdict: the signs, of the same layout; for parameters on a GPU it may lie there or in the CPU's memory.
        steps: float32[P], η of each parameter.
        decays: float32[P], 1 − ηλ of each parameter.
    """
    if _on_gpu(parameters):
        from . import cuda

        cuda.descend(parameters, verdict, steps, decays)
        return
    verdict, layout = _on_host(verdict), verdict.layout
    addresses = np.where(verdict.decided, addresses_of(parameters), 0)
    cpu.descend(addresses, layout.numels, layout.starts, verdict.words, verdict.ties, steps, decays)


def unpack(verdict: "AnyVerdict", p: int, device: torch.device | None = None) -> Tensor:
    """Return the verdict on parameter p as float32[numel]: +1, −1, or 0 where tied; on `device`, by default the verdict's."""
    if (device or verdict.message.device).type == "cuda":
        from . import cuda

        return cuda.unpack(verdict, p, device)
    verdict = _on_host(verdict)
    out = torch.empty(int(verdict.layout.numels[p]))
    start = verdict.layout.starts[p]
    cpu.unpack(verdict.words[start:], verdict.ties[start:], out.numpy())
    return out


def disagreement(ballot: Tensor, verdict: "AnyVerdict") -> tuple[int, int]:
    """Return in how many coordinates a ballot differs from the verdict, and of how many that it voted on."""
    if ballot.is_cuda:
        from . import cuda

        return cast(tuple[int, int], cuda.disagreement(ballot, verdict))
    verdict, layout = _on_host(verdict), verdict.layout
    message = ballot.numpy()
    present = layout.read_presence(message[: layout.header])
    differ = cpu.disagreement(layout.numels, layout.starts, present, message[layout.header :], verdict.words)
    return int(differ), int(layout.numels[present].sum())


def l1_norms(layout: Layout, vectors: Sequence[Tensor | None]) -> npt.NDArray[np.float64]:
    """Return Σ|v| of each parameter, 0 where it is None; the order of summation is fixed: the same data, the same bits.

    Coordinates are added in float64, in memory order, in eight lanes (j, j + 8, j + 16, …), then the lanes from 0 on.
    """
    if _on_gpu(vectors):
        from . import cuda

        return cast(npt.NDArray[np.float64], cuda.l1_norms(layout, vectors))
    sums = np.empty(len(layout.numels))
    cpu.power_sums(addresses_of(vectors), layout.numels, False, sums)
    return sums


def l2_norm(layout: Layout, vectors: Sequence[Tensor | None]) -> float:
    """Return the norm of all parameters that are not None as one vector, rounded to float32.

    Squares are added as in `l1_norms`, the parameters' sums in order; the root is taken in float64. It is inf where it is
    too large for float32, and inf or NaN where a coordinate is; never smaller than a coordinate's magnitude.
    """
    if _on_gpu(vectors):
        from . import cuda

        return cast(float, cuda.l2_norm(layout, vectors))
    sums, total = np.empty(len(layout.numels)), 0.0
    cpu.power_sums(addresses_of(vectors), layout.numels, True, sums)
    for part in sums.tolist():
        total += part
    with np.errstate(over="ignore"):
        return float(np.float32(np.sqrt(total)))


def stochastic_sign_ballot(
    layout: Layout, vectors: Sequence[Tensor | None], norm: float, key: int, ballot: Tensor
) -> bool:
    """Write the ballot of stochastic signs: coordinate i is negative with probability ½ − ½·v_i/norm; tell if it votes.

    Bit for bit: r = v_i/norm rounded to float32, k = 2²³·r rounded to an integer (half to even), u = 24 random bits;
    negative where u < 2²³ − k. A coordinate of 0 is a fair coin. Coordinate c of the whole layout (64·word + bit, padding
    and a part's offset included) takes its u from coin c >> 1 of the stream `key`: bits 8…31 for an even c, 40…63 for an
    odd one. So no bit depends on threads, order, device, or on how the layout is cut.

    Args:
        layout: P parameters.
        vectors: P tensors float32[numel], or None where there is nothing to vote on.
        norm: ‖v‖₂ of the whole vector in float32, `l2_norm`; 0, inf or NaN makes the worker abstain: s̃ign(0) = 0.
        key: names the stream of coins.
        ballot: uint64[layout.message], written.
    """
    if ballot.is_cuda:
        from . import cuda

        return cast(bool, cuda.stochastic_sign_ballot(layout, vectors, norm, key, ballot))
    message, size = ballot.numpy(), np.float32(norm)
    votes = bool(np.isfinite(size) and size > 0)
    present = np.array([vector is not None and votes for vector in vectors], np.bool_)
    addresses = np.where(present, addresses_of(vectors), 0)
    words = message[layout.header :]
    cpu.stochastic_signs(addresses, layout.numels, layout.starts, size, key, layout.offset, words)
    layout.write_presence(present, message[: layout.header])
    return bool(present.any())


def sign_sums(
    layout: Layout, planes: npt.NDArray[np.uint64] | Tensor, voters: npt.NDArray[np.int64] | Tensor, sums: Tensor
) -> None:
    """Write the sums of signs, voters − 2·count, exact in float32 up to 2²⁴ workers.

    Args:
        layout: P parameters.
        planes: uint64[K, layout.words], bit k of each coordinate's count of negative signs, as in `Tally`.
        voters: int64[P]. On a GPU planes and voters are tensors, as `cuda.Tally` has them.
        sums: float32[64 * layout.words], written; parameter p's begin at 64·starts[p], what stands in padding is nothing.
    """
    if sums.is_cuda:
        from . import cuda

        cuda.sign_sums(layout, cast(Tensor, planes), cast(Tensor, voters), sums)
        return
    cpu.sign_sums(planes, layout.numels, layout.starts, voters, sums.numpy())


def residuals(layout: Layout, moved: Tensor, scales: Floats, ballot: Tensor, errors: Tensor) -> None:
    """e ← p − scale·sign(p), where the ballot holds sign(p); a parameter that it abstains on keeps its e.

    Args:
        layout: P parameters.
        moved: float32[64 * layout.words], p.
        scales: float32[P].
        ballot: uint64[layout.message].
        errors: float32[64 * layout.words], changed in place.
    """
    if moved.is_cuda:
        from . import cuda

        cuda.residuals(layout, moved, scales, ballot, errors)
        return
    message = ballot.numpy()
    present = layout.read_presence(message[: layout.header])
    words = message[layout.header :]
    cpu.residuals(moved.numpy(), layout.numels, layout.starts, scales, present, words, errors.numpy())


def scaled_sign_means(layout: Layout, ballots: Tensor, scales: Floats, means: Tensor) -> npt.NDArray[np.bool_]:
    """Write the mean of scale·sign over each parameter's voters, and return who votes on what: bool[n, P].

    The mean is added in float64 from rank 0 on and rounded to float32 once: n equal workers give exactly what one gives.

    Args:
        layout: P parameters.
        ballots: uint64[n, layout.message].
        scales: float32[n, P].
        means: float32[layout.coordinates], written, without padding; 0 where nobody votes.
    """
    if means.is_cuda:
        from . import cuda

        return cast(npt.NDArray[np.bool_], cuda.scaled_sign_means(layout, ballots, scales, means))
    messages = ballots.numpy()
    headers = (np.ascontiguousarray(row[: layout.header]) for row in messages)
    present = np.array([layout.read_presence(header) for header in headers], np.bool_)
    starts, voters = layout.header + layout.starts, present.sum(axis=0, dtype=np.int64)
    cpu.scaled_sign_means(messages, scales, present, layout.numels, starts, voters, means.numpy())
    return present


def warm_up(device: torch.device | str = "cpu") -> None:
    """Compile all kernels, or load them from Numba's cache, so that no step has to wait for it."""
    if torch.device(device).type == "cuda":
        from . import cuda

        cuda.warm_up(device)
        return
    layout = Layout([65])
    verdict = Verdict(layout, "abstain")
    vector, momentum, ballot = (
        torch.zeros(65),
        torch.zeros(64 * layout.words),
        torch.zeros(layout.message, dtype=torch.uint64),
    )
    one = np.ones(1, np.float32)
    sign_ballot(layout, [vector], momentum, one, one, "coin", 0, ballot)
    tally = Tally(layout, 1)
    tally.add([ballot])
    tally.decide(0, verdict)
    descend([vector], verdict, one, one)
    unpack(verdict, 0)
    disagreement(ballot, verdict)
    stochastic_sign_ballot(layout, [vector], l2_norm(layout, [vector]), 0, ballot)
    l1_norms(layout, [vector])
    sign_sums(layout, tally.counters().numpy(), tally.voters, momentum)
    residuals(layout, momentum, one, ballot, momentum)
    scaled_sign_means(layout, ballot.view(1, -1), one.reshape(1, 1), vector)


def _on_gpu(tensors: Sequence[Tensor | None]) -> bool:
    return next((tensor.is_cuda for tensor in tensors if tensor is not None), False)


def _on_host(verdict: "AnyVerdict") -> Verdict:
    if not isinstance(verdict, Verdict):
        raise TypeError(
            f"the tensors are on the CPU, the verdict is on {verdict.message.device}: copy its message first"
        )
    return verdict
