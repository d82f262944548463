"""Exponential graphs: everybody is log2(n) hops away, and in the one-peer form a node sends one message a round."""

from dataclasses import dataclass
from typing import Literal

from ..errors import TopologyError
from .checks import check_node, check_size
from .digraph import Digraph

Order = Literal["intended", "reference"]
"""How the offsets follow one another: see `OnePeerExponential`."""


def exponential(n: int) -> Digraph:
    """Return the digraph in which node i sends to i + 1, i + 2, i + 4 … below n, modulo n.

    >>> exponential(6).successors[0]
    (1, 2, 4)
    """
    check_size(n, "digraph")
    offsets = [1 << bit for bit in range((n - 1).bit_length())]
    return Digraph(tuple(tuple((i + offset) % n for offset in offsets) for i in range(n)))


@dataclass(frozen=True)
class OnePeerExponential:
    """In round r node i sends to i + o and receives from i − o, modulo size, with an offset o that goes through 1, 2, 4 ….

    With d = log2(size), and round r = S·i + j the j-th of the S of step i, the order of the offsets is

        intended    o = 2^(r mod d): after d rounds of x ← (x + received)/2 all hold the exact mean
        reference   o = 2^(i·(S+j) mod d), which the paper's code computes: for size 16 and S = 2 the steps have the
                    offsets (1, 1), (4, 8), (1, 4), (4, 2), so that the mean is exact every fourth step, not every second

    Args:
        size: a power of two; with another the mean would never be exact, and TopologyError says so.
        order: of the offsets.
        rounds_a_step: S, how many rounds follow each local step; only the reference's order depends on it.

    Source: Assran et al. 2019; Vogels et al. 2021, as a baseline, with S = 2.

    >>> [OnePeerExponential(8).offset(r) for r in range(5)]
    [1, 2, 4, 1, 2]
    >>> [OnePeerExponential(16, "reference", 2).offset(r) for r in range(8)]
    [1, 1, 4, 8, 1, 4, 4, 2]
    """

    size: int
    order: Order = "intended"
    rounds_a_step: int = 1

    def __post_init__(self) -> None:
        check_size(self.size, "one-peer exponential graph")
        if self.size & (self.size - 1):
            raise TopologyError(f"a one-peer exponential graph needs a power of two of nodes, got {self.size}")
        if self.order not in ("intended", "reference"):
            raise TopologyError(f"order must be intended or reference, got {self.order!r}")
        if self.rounds_a_step < 1:
            raise TopologyError(f"rounds_a_step must be at least 1, got {self.rounds_a_step}")

    @property
    def period(self) -> int:
        """The number of rounds after which the offsets repeat."""
        logarithm = max(1, self.size.bit_length() - 1)
        return logarithm if self.order == "intended" else logarithm * self.rounds_a_step

    def offset(self, round: int) -> int:  # noqa: A002  the word of the paper
        """Return by how much who sends in this round >= 0 is below who receives; 0 where there is one node."""
        logarithm = self.size.bit_length() - 1
        if logarithm == 0:
            return 0
        step, inner = divmod(round, self.rounds_a_step)
        return int(
            2 ** ((round if self.order == "intended" else step * (self.rounds_a_step + inner)) % logarithm)
        )  # [sic] the reference's lacks brackets round i·S

    def dest(self, node: int, round: int) -> int:  # noqa: A002
        """Return to whom the node sends in this round; itself where it is alone."""
        check_node(node, self.size, "one-peer exponential graph")
        return (node + self.offset(round)) % self.size

    def source(self, node: int, round: int) -> int:  # noqa: A002
        """Return from whom the node receives in this round."""
        check_node(node, self.size, "one-peer exponential graph")
        return (node - self.offset(round)) % self.size
