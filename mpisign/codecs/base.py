"""A codec: how a flat float32 vector travels when it is averaged."""

import abc
from typing import ClassVar

from torch import Tensor


class Codec(abc.ABC):
    """Turns float32[numel] into uint64[words] and back; knows no communicator, and keeps nothing between calls.

    The same vector and key give the same bits, whatever was encoded or decoded in between, and neither changes its input.
    A vector of zeros comes back as zeros. A subclass takes what stands after its name in `--codec NAME:ARGUMENT` as further
    arguments: numbers as int or float, all else as text.

    Args:
        numel: length of the vectors, at least 0.
        words: length of a message.

    Attributes:
        nbytes: bytes of a message.
    """

    unbiased: ClassVar[bool] = False
    """Whether the mean of what comes back, over keys, is the vector."""

    feedback: ClassVar[bool] = False
    """Whether it loses so much that what is lost must be kept and sent later (`ErrorFeedback`)."""

    both_ways: ClassVar[bool] = False
    """Whether the mean goes back through it too, even if nobody asks for that."""

    def __init__(self, numel: int, words: int) -> None:
        self.numel, self.words, self.nbytes = numel, words, 8 * words

    @property
    def repeats(self) -> bool:
        """Whether what has come back is encoded to the same bits again, with any key."""
        return False

    def accepts(self, vector: Tensor) -> bool:
        """Tell whether the vector can be sent; a worker whose vector can't abstains."""
        return bool(vector.isfinite().all())

    @abc.abstractmethod
    def encode(self, vector: Tensor, key: int) -> Tensor:
        """float32[numel] that is accepted -> uint64[words]; `key` (63 bits) names the coins of one that draws them."""

    @abc.abstractmethod
    def decode(self, message: Tensor) -> Tensor:
        """uint64[words] -> float32[numel]."""
