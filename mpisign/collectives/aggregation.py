"""An aggregate of float vectors that travel through a codec: QSGD's mean, a median, Krum."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import aggregators, codecs, kernels, seeding
from ..codecs import Codec, ErrorFeedback
from ..codecs.floats import Float32
from ..comm import Comm
from ..errors import QuorumError
from ..timing import Stopwatch


class Aggregation:
    """Every rank encodes its P blocks as one vector; the server decodes all, aggregates them, and sends the aggregate back.

    Up: the codec's message, the server's own vector encoded like everybody's, and a bit a block that says "I have it".
    Down: float32, or with `two_way` the codec's message again. All ranks decode the same bits. The codec's coins are of each
    rank's own, and the server has others for the way down. With a codec that needs error feedback each rank keeps a residual,
    and for two ways the server one more.

    A block is aggregated over the ranks that have it, in rank order; blocks that the same ranks have are one vector (Krum
    judges it as one). A rank whose vector the codec does not accept (NaN; too large for a half float) abstains, and one
    whose vector is not finite when it is decoded is left out. What too few ranks have for the aggregator stays without an
    aggregate, with a warning the first time: with Krum's 2f + 3 workers, one that abstains stops all. All ranks call it
    together.

    Args:
        comm: the ranks; the server holds all of their vectors as float32.
        numels: the lengths of the P blocks.
        codec: as `--codec`, or a function from a length to a Codec.
        aggregator: as `--aggregator`, or a function float32[n, d] -> float32[d].
        two_way: whether the aggregate goes back through the codec.
        seed: names the codec's coins.
        watch: receives the seconds of the phases "pack", "communicate" and "vote".
        server: the rank that aggregates; it is also a worker.

    Attributes:
        voters: ranks that took part in the last call.
        nbytes: bytes that each rank sends.
    """

    def __init__(
        self,
        comm: Comm,
        numels: Sequence[int],
        codec: str | Callable[[int], Codec] = "float32",
        aggregator: str | aggregators.Aggregator = "mean",
        two_way: bool = False,
        seed: int = 0,
        watch: Stopwatch | None = None,
        server: int = 0,
    ) -> None:
        self.comm, self.server, self.watch = comm, server, watch or Stopwatch()
        self.voters = 0
        self._layout = kernels.Layout(numels)
        self._aggregate = aggregators.build(aggregator)
        up = codecs.build(codec, self._layout.coordinates)
        down = codecs.build(codec, up.numel) if two_way or up.both_ways else Float32(up.numel)
        self._up, self._down = (ErrorFeedback(way) if way.feedback else way for way in (up, down))
        self._up_key = seeding.key(seed, comm.rank, "codec")
        self._down_key = seeding.key(seed, seeding.SHARED, "codec")
        self._vector = torch.zeros(up.numel)
        self._slots = torch.split(self._vector, list(numels))
        self._outbox = torch.zeros(self._layout.header + up.words, dtype=torch.uint64)
        self._inbox = torch.zeros(self._layout.header + 1 + down.words, dtype=torch.uint64)
        self.nbytes = self._outbox.nbytes
        self._warned = False

    @property
    def residuals(self) -> dict[str, Tensor]:
        """What error feedback keeps on this rank, by name: float32[sum of numels] each."""
        ways = {"residual": self._up, "server_residual": self._down if self.comm.rank == self.server else self._vector}
        return {name: way.residual for name, way in ways.items() if isinstance(way, ErrorFeedback)}

    def __call__(self, blocks: Sequence[Tensor | None], step: int = 0) -> tuple[list[Tensor | None], bool]:
        """Return the aggregates, None where there is none, and whether this rank's vector was accepted.

        `step` is the same on all ranks; every step has coins of its own.
        """
        with self.watch("pack"):
            accepted = self._pack(blocks, kernels.stream(self._up_key, step))
        with self.watch("communicate"):
            gathered = self.comm.gather(self._outbox, self.server)
            if gathered is not None:
                with self.watch("vote"):
                    self._serve(gathered, kernels.stream(self._down_key, step))
            self.comm.bcast(self._inbox, self.server)
        header = self._layout.header
        decided = self._layout.read_presence(self._inbox.numpy()[:header])
        self.voters = int(self._inbox[header])
        with self.watch("pack"):
            parts = torch.split(self._down.decode(self._inbox[header + 1 :]), self._layout.numels.tolist())
        return [part if here else None for part, here in zip(parts, decided.tolist(), strict=True)], accepted

    def _pack(self, blocks: Sequence[Tensor | None], key: int) -> bool:
        """Write the message, or with what is not accepted an empty one."""
        header = self._layout.header
        present = np.array([block is not None for block in blocks], np.bool_)
        self._vector.zero_()
        self._outbox.zero_()
        for slot, block in zip(self._slots, blocks, strict=True):
            if block is not None:
                slot.copy_(block.detach().reshape(-1))
        if not self._up.accepts(self._vector):
            return False
        if not present.any():
            return True
        if isinstance(self._up, ErrorFeedback):
            there = torch.from_numpy(np.repeat(present, self._layout.numels))
            self._outbox[header:] = self._up.encode(self._vector, key, there)
        else:
            self._outbox[header:] = self._up.encode(self._vector, key)
        self._layout.write_presence(present, self._outbox.numpy()[:header])
        return True

    def _serve(self, gathered: Tensor, key: int) -> None:
        """Decode, aggregate, and write what goes back."""
        header = self._layout.header
        rows, present = self._decode(gathered)
        decided, aggregate = self._decide(rows, present)
        if not self._down.accepts(aggregate):  # a sum of finite numbers need not be finite
            decided[:] = False
        self._inbox.zero_()
        self._inbox[header] = int(present.any(axis=1).sum())
        self._layout.write_presence(decided, self._inbox.numpy()[:header])
        if not decided.any():
            return
        if isinstance(self._down, ErrorFeedback):
            there = torch.from_numpy(np.repeat(decided, self._layout.numels))
            self._inbox[header + 1 :] = self._down.encode(aggregate, key, there)
        else:
            self._inbox[header + 1 :] = self._down.encode(aggregate, key)

    def _decode(self, gathered: Tensor) -> tuple[Tensor, npt.NDArray[np.bool_]]:
        """Return float32[n, d], and who has which block: bool[n, P]."""
        header = self._layout.header
        rows = torch.zeros((len(gathered), self._layout.coordinates))
        present = np.zeros((len(gathered), len(self._layout.numels)), np.bool_)
        for row, here, message in zip(rows, present, gathered, strict=True):
            here[:] = self._layout.read_presence(message[:header].numpy())
            if here.any():
                row.copy_(self._up.decode(message[header:]))
                here &= bool(row.isfinite().all())
        return rows, present

    def _decide(self, rows: Tensor, present: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], Tensor]:
        """Return the blocks that get an aggregate, bool[P], and the aggregate, float32[d]; 0 where there is none."""
        decided: npt.NDArray[np.bool_] = np.array(present.any(axis=0), np.bool_)
        aggregate = torch.zeros(rows.shape[1])
        for voters in np.unique(present.T[decided], axis=0):
            blocks = np.equal(present.T, voters).all(axis=1)
            columns = torch.from_numpy(np.flatnonzero(np.repeat(blocks, self._layout.numels)))
            chosen = rows if voters.all() else rows[torch.from_numpy(voters)]
            try:
                if blocks.all():
                    aggregate = self._aggregate(chosen)
                else:
                    aggregate[columns] = self._aggregate(chosen[:, columns])
            except QuorumError as error:
                decided[blocks] = False
                self._warn(error)
        return decided, aggregate

    def _warn(self, error: QuorumError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{error}. The step changes nothing for the parameters that so few vote on; further such steps pass without "
                f"a warning",
                RuntimeWarning,
                stacklevel=2,
            )
