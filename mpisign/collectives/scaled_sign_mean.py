"""The mean of signs that each worker scales by numbers of its own."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import kernels
from ..comm import Comm
from ..timing import Stopwatch


class ScaledSignMean:
    """Gathers ballots and scales at one rank, which broadcasts the mean of scale·sign over each parameter's voters.

    Up: 1 bit a coordinate, and 32 bits a scale. Down: 32 bits a coordinate, since the mean has no shorter form: only the
    way up is compressed. The server holds all n ballots. It adds in float64, from rank 0 on, and rounds to float32 once:
    the same bits under every MPI, and n equal workers give exactly what one gives. All ranks call it together.

    Args:
        comm: the workers.
        layout: P parameters.
        scales: how many each worker sends: P, or 1 for all of its parameters.
        watch: receives the seconds of the phases "communicate" and "vote".
        server: the rank that adds; it is also a worker.

    Attributes:
        counts: int64[P], the voters of each parameter in the last call.
        voters: workers that voted on anything at all.
    """

    def __init__(
        self, comm: Comm, layout: kernels.Layout, scales: int, watch: Stopwatch | None = None, server: int = 0
    ) -> None:
        if scales not in (1, len(layout.numels)):
            raise ValueError(f"scales must be 1 or the number of parameters, {len(layout.numels)}; got {scales}")
        self.comm, self.layout, self.server = comm, layout, server
        self.watch = watch or Stopwatch()
        self.counts: npt.NDArray[np.int64] = np.zeros(len(layout.numels), np.int64)
        self.voters = 0
        self._outbox = torch.zeros(layout.message + (scales + 1) // 2, dtype=torch.uint64)
        self._scales = self._outbox.numpy()[layout.message :].view(np.float32)[:scales]
        self._inbox = torch.zeros(len(layout.numels) + 1 + layout.coordinates)
        lengths = [len(layout.numels), 1, layout.coordinates]
        self._presence, self._count, self._means = torch.split(self._inbox, lengths)
        self._blocks = torch.split(self._means, layout.numels.tolist())

    @property
    def nbytes_up(self) -> int:
        """Bytes that each worker sends."""
        return self._outbox.nbytes

    def __call__(self, ballot: Tensor, scales: kernels.Floats) -> list[Tensor | None]:
        """Return each parameter's mean, float32[numel], None where nobody votes; valid until the next call."""
        self._outbox[: self.layout.message] = ballot
        self._scales[:] = scales
        with self.watch("communicate"):
            gathered = self.comm.gather(self._outbox, self.server)
            if gathered is not None:
                with self.watch("vote"):
                    self._add(gathered)
            self.comm.bcast(self._inbox, self.server)
        self.counts[:] = self._presence.numpy()
        self.voters = int(self._count)
        return [block if count else None for block, count in zip(self._blocks, self.counts.tolist(), strict=True)]

    def _add(self, gathered: Tensor) -> None:
        tails = np.ascontiguousarray(gathered.numpy()[:, self.layout.message :]).view(np.float32)
        sent = tails[:, : len(self._scales)]
        scales = np.ascontiguousarray(np.broadcast_to(sent, (self.comm.size, len(self.counts))))
        present = kernels.scaled_sign_means(self.layout, gathered[:, : self.layout.message], scales, self._means)
        self._presence.numpy()[:] = present.sum(axis=0)
        self._count[0] = int(present.any(axis=1).sum())
