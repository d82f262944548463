"""A tally and a verdict that live on a device: as those of the CPU, but that who votes on what is known there alone."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import tally
from ..layout import Layout
from ..tally import Tie, addresses_of
from . import counting
from .launching import insist_on, launch, table, upload, word_tiles
from .memory import THREADS

_TIE_RULES: dict[Tie, int] = {"plus": 0, "coin": 1, "abstain": 2}


class Verdict:
    """As `kernels.Verdict`, with the same message on a device.

    Attributes:
        message: header, the number of voters, words and, with tie="abstain", ties: uint64[…].
        header, count, words, ties: views of it.
    """

    def __init__(self, layout: Layout, tie: Tie, device: torch.device | str) -> None:
        if tie not in get_args(Tie):
            raise ValueError(f"tie must be one of {', '.join(get_args(Tie))}; got {tie!r}")
        self.layout, self.tie = layout, tie
        start, end = layout.header + 1, layout.header + 1 + layout.words
        self.message = torch.zeros(start + layout.words * (2 if tie == "abstain" else 1), dtype=torch.uint64).to(device)
        self.header, self.count = self.message[: layout.header], self.message[layout.header : start]
        self.words, self.ties = self.message[start:end], self.message[end:]

    @property
    def voters(self) -> int:
        """How many workers voted on anything at all; waits for the device."""
        return int(self.count.cpu()[0])

    @property
    def decided(self) -> npt.NDArray[np.bool_]:
        """bool[P]: the parameters that somebody voted on; waits for the device."""
        return self.layout.read_presence(self.header.cpu().numpy())


class Landed(Verdict):
    """A verdict that was found in the CPU's memory, and whose message is copied here: what the host knows waits for nothing."""

    def __init__(self, found: tally.Verdict, device: torch.device | str) -> None:
        super().__init__(found.layout, found.tie, device)
        self._found = found

    @property
    def voters(self) -> int:
        """How many workers voted on anything at all."""
        return self._found.voters

    @property
    def decided(self) -> npt.NDArray[np.bool_]:
        """bool[P]: the parameters that somebody voted on."""
        return self._found.decided


AnyVerdict = Verdict | tally.Verdict


class Tally:
    """As `kernels.Tally`, for ballots on a device; nothing waits for it.

    Attributes:
        voters: int64[P] on the device, ballots that voted on each parameter.
        added: ballots in all.
        count: int64[1] on the device, ballots that voted on anything.
    """

    def __init__(self, layout: Layout, workers: int, device: torch.device | str) -> None:
        self.layout, self.workers = layout, workers
        self.planes = torch.zeros((workers.bit_length(), layout.words), dtype=torch.uint64).to(device)
        self.device = self.planes.device
        self.voters = torch.zeros(len(layout.numels), dtype=torch.int64, device=self.device)
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.added = 0

    def clear(self) -> None:
        """Forget all ballots."""
        self.voters.zero_()
        self.count.zero_()
        self.added = 0

    def add(self, ballots: Sequence[Tensor]) -> None:
        """Count ballots, each uint64[layout.message] on the device; what they hold where they abstain isn't read."""
        self._admit(len(ballots))
        insist_on(self.device, *ballots)
        for first in range(0, len(ballots), counting.BATCH):
            batch = ballots[first : first + counting.BATCH]
            used, self.added = self.added.bit_length(), self.added + len(batch)
            blocks, tiles = word_tiles(self.layout, self.device)
            launch(
                counting.add_ballots,
                blocks,
                self.device,
                tiles.data_ptr(),
                self._table().data_ptr(),
                len(self.layout.numels),
                upload(self.device, addresses_of(batch)).data_ptr(),
                len(batch),
                self.layout.header,
                self.planes.data_ptr(),
                self.layout.words,
                used,
                self.added.bit_length(),
                self.voters.data_ptr(),
                self.count.data_ptr(),
            )

    def counters(self) -> Tensor:
        """Return uint64[bits, words], plane k with bit k of the number of negative votes on each coordinate, so far."""
        self.planes.view(torch.int64)[self.added.bit_length() :].zero_()
        return self.planes

    def merge(self, counters: Tensor, voters: Tensor, added: int, count: Tensor) -> None:
        """Add what another tally of the same layout has counted, as in `kernels.Tally.merge`; tensors of this device."""
        self._admit(added)
        insist_on(self.device, counters, voters, count)
        used, self.added = self.added.bit_length(), self.added + added
        counters = counters.contiguous()
        launch(
            counting.add_counters,
            -(-self.layout.words // THREADS),
            self.device,
            self.planes.data_ptr(),
            self.layout.words,
            used,
            counters.data_ptr(),
            len(counters),
            self.added.bit_length(),
        )
        self.voters += voters
        self.count += count

    def decide(self, key: int, verdict: Verdict) -> None:
        """Write the majority of the ballots; a tie falls by the verdict's rule, a coin by (key, word)."""
        layout = self.layout
        insist_on(self.device, verdict.message)
        blocks, tiles = word_tiles(layout, self.device)
        launch(
            counting.majority,
            blocks,
            self.device,
            tiles.data_ptr(),
            self._table().data_ptr(),
            len(layout.numels),
            self.planes.data_ptr(),
            layout.words,
            self.added.bit_length(),
            self.voters.data_ptr(),
            self.count.data_ptr(),
            _TIE_RULES[verdict.tie],
            key,
            layout.offset,
            verdict.message.data_ptr(),
            verdict.words.data_ptr(),
            verdict.ties.data_ptr(),
        )
        if blocks == 0:
            verdict.message.view(torch.int64).zero_()

    def _admit(self, ballots: int) -> None:
        if self.added + ballots > self.workers:
            raise ValueError(f"{self.added + ballots} ballots for a tally of {self.workers} workers")

    def _table(self) -> Tensor:
        return table(self.layout, self.device, [None] * len(self.layout.numels))
