"""The bit packing of paper 1's published code, to read and write its messages; this package's own is in `kernels`.

d signs make K = ceil(d/32) words of int32. Element e = r·K + j sits in word j, bit 31 − r: row r of a (32, K) view of the
padded vector is one bit of all words, row 0 the highest. 1 means negative (`v < 0`, so ±0 is positive), padding is 0.
The place of an element depends on K, so packed words must never be sliced or joined.

Source: Bernstein et al. 2019, compressor of their code.
"""

import numpy as np
import numpy.typing as npt

from . import reference
from .reference import Bits, Floats, Words

ReferenceWords = npt.NDArray[np.int32]


def pack_reference(values: Floats) -> ReferenceWords:
    """Pack signs, float32[d] -> int32[ceil(d/32)]; a NaN, which has no sign in that code, raises ValueError."""
    _check_dimensions("values", values, 1)
    if np.isnan(values).any():
        raise ValueError("values holds NaN, whose sign this format leaves open: replace it first")
    return _pack(values < 0)


def unpack_reference(words: ReferenceWords, d: int) -> Floats:
    """Unpack signs, int32[ceil(d/32)] -> float32[d] of +1 and −1. The words stay as they are (their code's decoder
    shifts them to nothing).
    """
    return np.where(_unpack(words, d), np.float32(-1), np.float32(1))


def vote_reference(words: npt.NDArray[np.int32], d: int) -> ReferenceWords:
    """Return the majority of M packed ballots, int32[M, ceil(d/32)] -> int32[ceil(d/32)]; a tie is +."""
    _check_dimensions("words", words, 2)
    if len(words) == 0:
        raise ValueError("a vote needs at least 1 ballot, got none")
    negative, _ = reference.majority(np.stack([_unpack(ballot, d) for ballot in words]), "plus")
    return _pack(negative)


def from_reference(words: ReferenceWords, d: int) -> Words:
    """Translate to this package's words, int32[ceil(d/32)] -> uint64[ceil(d/64)]."""
    return reference.pack(_unpack(words, d))


def to_reference(words: Words, d: int) -> ReferenceWords:
    """Translate from this package's words, uint64[ceil(d/64)] -> int32[ceil(d/32)]."""
    _check_words(words, d, 64)
    return _pack(reference.unpack(words, d))


def _pack(bits: Bits) -> ReferenceWords:
    count = -(-len(bits) // 32)
    padded = np.zeros(32 * count, np.bool_)
    padded[: len(bits)] = bits
    columns = np.ascontiguousarray(padded.reshape(32, count).T)  # one row a word, its highest bit first
    return np.packbits(columns).view(">i4").astype(np.int32)


def _unpack(words: ReferenceWords, d: int) -> Bits:
    _check_words(words, d, 32)
    columns = np.unpackbits(words.astype(">i4").view(np.uint8)).reshape(len(words), 32)  # astype copies
    return columns.T.reshape(-1)[:d].astype(np.bool_)


def _check_words(words: npt.NDArray[np.generic], d: int, bits: int) -> None:
    _check_dimensions("words", words, 1)
    if d < 0 or len(words) != -(-d // bits):
        raise ValueError(f"{d} signs make {-(-d // bits)} words of {bits} bits, but {len(words)} came")


def _check_dimensions(name: str, array: npt.NDArray[np.generic], wanted: int) -> None:
    if array.ndim != wanted:
        raise ValueError(f"{name} must have {wanted} dimension{'s' * (wanted > 1)}; its shape is {array.shape}")
