"""Words of bits, as they lie in a ballot: one cell a bit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .axes import new_axes, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ZERO, _ONE, _PADDING = "#56B4E9", "#D55E00", "#F0F0F0"  # as +, − and nothing in a vote
_BITS = 64


def words(
    numbers: Sequence[int] | npt.NDArray[np.unsignedinteger[Any]],
    used: Sequence[int],
    ax: "Axes | None" = None,
    names: Sequence[str] = (),
) -> "Axes":
    """Draw words of 64 bits, a row each, bit 0 on the left: 0 is light, 1 is dark with its figure, padding is grey.

    Args:
        numbers: the words, below 2⁶⁴; a tensor's `.numpy()` will do.
        used: how many bits of each word mean something; the others are padding.
        ax: where to draw; a new figure by default.
        names: what to call the words; by default "word 0", "word 1", …

    Errors: ValueError where the lengths differ, or a word uses more than 64 bits.
    """
    values = [int(number) for number in numbers]
    names = names or [f"word {index}" for index in range(len(values))]
    if not len(values) == len(used) == len(names) or any(not 0 <= count <= _BITS for count in used):
        raise ValueError(
            f"{len(values)} words, {len(used)} numbers of used bits ({list(used)}) and {len(names)} names: wanted as many "
            f"of each, and 0 to {_BITS} bits"
        )
    ax = ax or new_axes(9.5, 0.7 + 0.42 * len(values))
    for row, (value, count) in enumerate(zip(values, used, strict=True)):
        for bit in range(_BITS):
            _draw_bit(ax, bit, row, value >> bit & 1, bit < count)
    ax.set_xlim(-0.6, _BITS - 0.4)
    ax.set_ylim(len(values) - 0.45, -0.55)  # the first word on top
    ax.set_yticks(range(len(values)), names)
    ax.set_xticks([0, *range(7, _BITS, 8)])
    ax.set_xlabel("bit")
    without_frame(ax)
    return ax


def _draw_bit(ax: "Axes", x: int, y: int, one: int, used: bool) -> None:
    from matplotlib.patches import Rectangle

    color = (_ONE if one else _ZERO) if used else _PADDING
    ax.add_patch(Rectangle((x - 0.45, y - 0.4), 0.9, 0.8, facecolor=color, edgecolor="none"))
    if used:
        ax.text(x, y, str(one), fontsize=8, ha="center", va="center")
