"""Votes on ballots in a GPU's memory: copied to the host, or handed to MPI as they lie.

Both begin with `begin(step)`, in the thread that computes, which queues work and waits for nothing. What that returns is called
by all ranks together, in whatever thread: it blocks until the verdict is known. What *that* returns gives the verdict to the
work that is queued from then on. A verdict is valid until the next step's `begin`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .. import kernels
from ..comm.buffers import DeviceMessages, Staging
from .vote import Vote

if TYPE_CHECKING:
    from ..kernels.cuda import Verdict

Landing = Callable[[], "Verdict"]


class DeviceVote(Protocol):
    """What `begin` does is said above."""

    def begin(self, step: int) -> Callable[[], Landing]:
        """Take the ballot as what is queued so far leaves it."""


class StagedVote:
    """A vote in the host's memory, on copies of the ballots: any `Vote`, with its bits and bytes.

    Args:
        vote: the vote.
        ballot: uint64[ballots * message] on the device, in which each step's ballot will be.
        staging: copies. Buffers are pinned, and used in each step again.
    """

    def __init__(self, vote: Vote, ballot: Tensor, staging: Staging) -> None:
        from ..kernels import cuda

        self.vote, self._ballot, self._staging = vote, ballot, staging
        self._sent = staging.buffer(len(ballot), torch.uint64)
        self._decided = staging.buffer(len(vote.verdict.message), torch.uint64)
        self.verdict = cuda.Landed(vote.verdict, staging.device)

    def begin(self, step: int) -> Callable[[], Landing]:
        """Start to copy the ballot to the host."""
        arrived, free = self._staging.to_host(self._ballot, self._sent), self._staging.now()

        def decide() -> Landing:
            with self.vote.watch("gradient"):  # what is waited for is the device, which is still busy with gradients
                ballot = arrived()
            message = self.vote(ballot, step).message
            # the last copy out of it is done: on the same stream, this step's ballot came after it
            self._decided.copy_(message)
            landed = self._staging.to_device(self._decided, self.verdict.message, free)

            def land() -> "Verdict":
                landed()
                return self.verdict

            return land

        return decide


class AwareVote:
    """The server's vote (`ServerVote`) without the host: MPI takes ballots from, and puts the verdict into, GPU memory.

    The server holds all ballots. Verdict and bytes are `ServerVote`'s.

    Args:
        vote: the vote whose communicator, layout, rules and coins are used.
        ballot: uint64[ballots * message] on the device, in which each step's ballot will be.
        staging: of this device.
    """

    def __init__(self, vote: Vote, ballot: Tensor, staging: Staging) -> None:
        from ..kernels import cuda

        self.vote, self._ballot, self._staging = vote, ballot, staging
        self._messages, size = DeviceMessages(vote.comm), vote.comm.size
        self.verdict = cuda.Verdict(vote.layout, vote.tie, staging.device)
        serves = vote.comm.rank == 0
        self._ballots = torch.zeros((size, len(ballot)), dtype=torch.uint64).to(staging.device) if serves else None
        self._tally = cuda.Tally(vote.layout, size * vote.ballots, staging.device) if serves else None

    def begin(self, step: int) -> Callable[[], Landing]:
        """Mark where the ballot is complete."""
        packed = self._staging.now()

        def decide() -> Landing:
            with self.vote.watch("gradient"):
                packed.synchronize()  # before MPI reads
            with self.vote.watch("communicate"):
                self._decide(kernels.stream(self.vote.coins, step))
            return lambda: self.verdict

        return decide

    def _decide(self, key: int) -> None:
        self._messages.gather(self._ballot, self._ballots)
        if self._tally is not None and self._ballots is not None:
            self._staging.now().synchronize()  # the server's own ballot is among the others
            self._tally.clear()
            self._tally.add(list(self._ballots.view(-1, self.vote.layout.message)))
            self._tally.decide(key, self.verdict)
            if self.vote.ballots > 1:
                self.verdict.count.view(torch.int64).floor_divide_(self.vote.ballots)
            self._staging.now().synchronize()  # before MPI reads
        self._messages.bcast(self.verdict.message)
