"""A worker's side of a quorum: it sends blocks up, and hears what rank 0 sends down."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import LeftBehind
from .messages import CONTENT, DOWN, HEADER, STATE, UP, Messages, header

_ROOM = 1 << 20  # bytes by which a state may be longer than twice one's own


class Worker:
    """What `QuorumComm` does on all ranks but 0.

    Args:
        messages: between this rank and rank 0.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._state: Callable[[], Tensor] = lambda: torch.empty(0, dtype=torch.uint8)

    def open(self) -> None:
        """Begin; a worker measures nothing."""

    def readmit(self, state: Callable[[], Tensor]) -> None:
        """Remember one's own state: what comes in its place is about as long."""
        self._state = state

    def rows(self, block: Tensor, kind: int) -> tuple[None, list[int]]:
        """Send a block up."""
        self._messages.send([0], UP, kind, block)
        return None, []

    def down(self, block: Tensor) -> None:
        """Fill `block` with rank 0's of this round.

        Raises:
            LeftBehind: rank 0 has closed the round without this worker, and sent the state to go on from.
        """
        messages, pauses = self._messages, self._messages.pauses()
        request = messages.expect(0, DOWN, HEADER + block.nbytes)
        while not request.Test():
            next(pauses)
        message = messages.take(0)
        number, kind, nbytes = header(message)
        if kind == STATE:
            most = 2 * len(self._state()) + _ROOM
            while (content := messages.poll(0, CONTENT, most)) is None:
                next(pauses)
            messages.round = number
            raise LeftBehind(content)
        if (number, nbytes) != (messages.round, block.nbytes):
            raise messages.confusion(0, message)
        block.view(torch.uint8)[:] = message[HEADER:]
        messages.reuse([message])
