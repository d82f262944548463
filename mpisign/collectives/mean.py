"""The mean of float vectors over those ranks that have one: what data-parallel SGD does to gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..comm import Comm
from ..timing import Stopwatch


class Mean:
    """Averages P blocks at once, each over the ranks that have it; none is an abstention, and so is a vector with NaN.

    Args:
        comm: the ranks.
        numels: the lengths of the P blocks.
        dtype: float32 or float64, in which they are sent and summed, in rank order.
        watch: receives the seconds of the phases "pack" and "communicate".
    """

    def __init__(
        self, comm: Comm, numels: Sequence[int], dtype: torch.dtype = torch.float32, watch: Stopwatch | None = None
    ) -> None:
        self.comm, self.watch = comm, watch or Stopwatch()
        self._flat = torch.zeros(len(numels) + sum(numels), dtype=dtype)
        self._presence, *self._blocks = torch.split(self._flat, [len(numels), *numels])
        self.voters = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the vector that is summed."""
        return self._flat.nbytes

    def __call__(self, blocks: Sequence[Tensor | None]) -> tuple[list[Tensor | None], bool]:
        """Return the means, None where no rank has the block, and whether this rank's values were finite.

        The means are valid until the next call.
        """
        with self.watch("pack"):
            self._flat.zero_()
            for p, (slot, block) in enumerate(zip(self._blocks, blocks, strict=True)):
                if block is not None:
                    slot.copy_(block.detach().reshape(-1))
                    self._presence[p] = 1
            finite = bool(self._flat.isfinite().all())
            if not finite:
                self._flat.zero_()
        with self.watch("communicate"):
            self.comm.allreduce(self._flat)
        counts = [int(count) for count in self._presence.tolist()]
        self.voters = max(counts, default=0)
        return [block.div_(count) if count else None for block, count in zip(self._blocks, counts, strict=True)], finite
