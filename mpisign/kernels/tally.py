"""Ballots counted, and what comes of it: a tally decides, and the verdict travels."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import cpu
from .layout import Layout

Tie = Literal["coin", "plus", "abstain"]

_TIE_RULES: dict[Tie, int] = {"plus": 0, "coin": 1, "abstain": 2}


def addresses_of(tensors: Sequence[Tensor | None]) -> npt.NDArray[np.int64]:
    """Return where each tensor begins in memory, 0 for none: int64[P]."""
    return np.array([0 if tensor is None else tensor.data_ptr() for tensor in tensors], np.int64)


class Verdict:
    """What the vote decided, as it travels: header, the majority's signs, and with tie="abstain" the tied coordinates.

    The header's bit p says that somebody voted on parameter p. One word after it holds the number of workers that voted.
    """

    def __init__(self, layout: Layout, tie: Tie) -> None:
        if tie not in get_args(Tie):
            raise ValueError(f"tie must be one of {', '.join(get_args(Tie))}; got {tie!r}")
        self.layout, self.tie = layout, tie
        start = layout.header + 1
        self.message = torch.zeros(start + layout.words * (2 if tie == "abstain" else 1), dtype=torch.uint64)
        view = self.message.numpy()
        self.header, self.count = view[: layout.header], view[layout.header : start]
        self.words, self.ties = view[start : start + layout.words], view[start + layout.words :]

    @property
    def voters(self) -> int:
        """How many workers voted on anything at all."""
        return int(self.count[0])

    @property
    def decided(self) -> npt.NDArray[np.bool_]:
        """bool[P]: the parameters that somebody voted on."""
        return self.layout.read_presence(self.header)


class Tally:
    """Ballots counted as they come, in bit-sliced counters: plane k holds bit k of each coordinate's count.

    Memory: (the bits of `workers`) × a ballot's size, however many ballots are added.

    Attributes:
        voters: int64[P], ballots that voted on each parameter.
        added: ballots in all.
        count: ballots that voted on anything.
    """

    def __init__(self, layout: Layout, workers: int) -> None:
        self.layout, self.workers = layout, workers
        self.planes = torch.zeros((workers.bit_length(), layout.words), dtype=torch.uint64)
        self.voters = np.zeros(len(layout.numels), np.int64)
        self.added, self.count = 0, 0
        self._counted = 0  # ballots in the planes
        self._last: list[Tensor] = []  # added, and not in the planes yet

    def clear(self) -> None:
        """Forget all ballots."""
        self.voters[:], self.added, self.count, self._counted, self._last = 0, 0, 0, 0, []

    def add(self, ballots: Sequence[Tensor]) -> None:
        """Count ballots, each uint64[layout.message]; the words of a parameter that a ballot abstains on are set to 0.

        The ballots that complete the number of workers are kept as they are until `decide`, which counts them.
        """
        if self.added + len(ballots) > self.workers:
            raise ValueError(f"{self.added + len(ballots)} ballots for a tally of {self.workers} workers")
        header = self.layout.header
        for ballot in ballots:
            present = self.layout.read_presence(ballot.numpy()[:header])
            self.voters += present
            self.count += bool(present.any())
            if not present.all():
                self._erase_absent(ballot, present)
        self.added += len(ballots)
        self._last = list(ballots)
        self._settle(keep=cpu.BATCH if self.added == self.workers else 0)

    def counters(self) -> Tensor:
        """Return uint64[bits, words], plane k with bit k of the number of negative votes on each coordinate, so far."""
        self._settle(keep=0)
        self.planes[self._counted.bit_length() :].zero_()
        return self.planes

    def merge(self, counters: Tensor, voters: npt.NDArray[np.int64], added: int, count: int) -> None:
        """Add what another tally of the same layout has counted.

        Args:
            counters: uint64[bits of `added`, words], as `counters()` gives them.
            voters: int64[P], ballots that voted on each parameter.
            added: ballots in all.
            count: ballots that voted on anything.
        """
        if self.added + added > self.workers:
            raise ValueError(f"{self.added + added} ballots for a tally of {self.workers} workers")
        self._settle(keep=0)
        used, self._counted = self._counted.bit_length(), self._counted + added
        cpu.add_counters(self.planes.numpy(), used, counters.numpy(), self._counted.bit_length())
        self.added, self.count = self.added + added, self.count + count
        self.voters += voters

    def _settle(self, keep: int) -> None:
        while len(self._last) > keep:
            batch, self._last = self._last[: cpu.BATCH], self._last[cpu.BATCH :]
            used, self._counted = self._counted.bit_length(), self._counted + len(batch)
            cpu.add_ballots(self.planes.numpy(), used, self._counted.bit_length(), self._word_addresses(batch))

    def _word_addresses(self, ballots: Sequence[Tensor]) -> npt.NDArray[np.int64]:
        return addresses_of(ballots) + 8 * self.layout.header

    def _erase_absent(self, ballot: Tensor, present: npt.NDArray[np.bool_]) -> None:
        # a worker that abstains for NaN, or one that lies about its presence, must not be counted as negative or positive
        words = ballot.numpy()[self.layout.header :]
        starts, numels = self.layout.starts, self.layout.numels
        for p in np.flatnonzero(~present):
            words[starts[p] : starts[p] + (numels[p] + 63) // 64] = 0

    def decide(self, key: int, verdict: Verdict) -> None:
        """Write the majority of the ballots; a tie falls by the verdict's rule, a coin by (key, word)."""
        layout = self.layout
        layout.write_presence(self.voters > 0, verdict.header)
        verdict.count[0] = self.count
        if self.added == 0:
            verdict.words[:], verdict.ties[:] = 0, 0
            return
        if self.added == len(self._last) == 1:  # one worker: it decides, and what it abstains on was set to 0
            verdict.words[:], verdict.ties[:] = self._last[0].numpy()[layout.header :], 0
            return
        cpu.majority(
            self.planes.numpy(),
            self._counted.bit_length(),
            self.added.bit_length(),
            self._word_addresses(self._last),
            layout.numels,
            layout.starts,
            self.voters,
            _TIE_RULES[verdict.tie],
            key,
            layout.offset,
            verdict.words,
            verdict.ties,
        )
