"""Where each parameter's signs stand in the words of a ballot."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class Layout:
    """The words of a ballot or verdict: a header with one presence bit a parameter, then each parameter's signs.

    Every parameter starts on a word of its own, so that gradients are read where they lie and need no flat copy.

    Attributes:
        numels: int64[P], coordinates of each parameter.
        starts: int64[P], the first word of each, counted after the header.
        words: words of signs in all.
        header: words of the header, ceil(P/64).
        message: header + words, the length of a ballot.
        coordinates: sum of the numels.
        offset: where the first word stands in the whole, for a part of a layout; else 0.
    """

    def __init__(self, numels: Sequence[int], offset: int = 0) -> None:
        self.numels = np.array(numels, np.int64).reshape(-1)
        if (self.numels < 0).any():
            raise ValueError(f"numels must not be negative, got {list(numels)}")
        lengths = (self.numels + 63) // 64
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[:-1]
        self.words = int(lengths.sum())
        self.header = (len(self.numels) + 63) // 64
        self.message = self.header + self.words
        self.coordinates = int(self.numels.sum())
        self.offset = offset

    def part(self, start: int, stop: int) -> "Layout":
        """Return the layout of the words start … stop−1: the same parameters, with those coordinates that stand there.

        >>> Layout([130, 64]).part(2, 4).numels.tolist()
        [2, 64]
        """
        first = np.clip(64 * (start - self.starts), 0, self.numels)
        last = np.clip(64 * (stop - self.starts), 0, self.numels)
        return Layout((last - first).tolist(), self.offset + start)

    def run(self, first: int, stop: int) -> "Layout":
        """Return the layout of the parameters first … stop−1 alone.

        >>> Layout([130, 64, 1]).run(1, 3).offset
        3
        """
        start = int(self.starts[first]) if first < len(self.starts) else self.words
        return Layout(self.numels[first:stop].tolist(), self.offset + start)

    def write_presence(self, present: npt.NDArray[np.bool_], header: npt.NDArray[np.uint64]) -> None:
        """Write bool[P] into the header's bits."""
        padded = np.zeros(64 * self.header, np.bool_)
        padded[: len(present)] = present
        header[:] = np.packbits(padded, bitorder="little").view(np.uint64)

    def read_presence(self, header: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return the header's bits as bool[P]."""
        return np.unpackbits(header.view(np.uint8), bitorder="little", count=len(self.numels)).view(np.bool_)
