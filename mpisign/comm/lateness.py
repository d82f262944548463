"""What a communicator says of ranks that are late; most wait for all."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


class Lateness:
    """The part of a communicator that `QuorumComm` gives a meaning: here, nobody is ever late."""

    def open(self) -> None:
        """From here on a rank may be late, where the transport can do without it (`QuorumComm`). Collective."""

    @property
    def away(self) -> tuple[int, ...]:
        """On rank 0: the ranks that are late, and not waited for any more."""
        return ()

    def readmit(self, state: Callable[[], Tensor]) -> None:
        """Say, between two steps and on all ranks, how to get the state that ranks go on from: those that were late get it.

        Args:
            state: gives uint8[n]; may be called until the next verb but one.
        """

    def news(self) -> list[dict[str, Any]]:
        """Return, on rank 0, who has been late or come back since the last call."""
        return []

    def lateness(self) -> dict[str, Any] | None:
        """Return how often ranks were late, the same on all; None, where none can be. Collective."""
        return None
