"""QSGD's loops: coordinates to digits, and digits to a stream of bits and back, compiled by Numba for the CPU.

Nothing imports this file but the codec that needs it: a run that quantises nothing doesn't wait for it.
"""

import numpy as np
from numba import njit

from .cpu import coin

_compile = njit(cache=True, nogil=True, error_model="numpy")


@_compile
def quantise(vector, norm, levels, shift, key, digits):  # type: ignore
    """digit = s + sign(v)·l, with l = t >> shift, or one more where the coin is below what is left of t.

    t = rint(|v|/norm · s·2^shift) in float64, half to even. Coordinate c takes its random bits from coin c >> 1: the upper
    `shift` of bits 8…31 for an even c, of 40…63 for an odd one. A norm of 0 gives zeros.
    """
    grid, rest = np.float64(levels << shift), np.uint64((1 << shift) - 1)
    for c in range(len(vector)):
        digits[c] = levels
    if norm == 0:
        return
    even, odd = np.uint64(32 - shift), np.uint64(64 - shift)
    for pair in range((len(vector) + 1) >> 1):
        chances = coin(key, pair)
        for c in range(2 * pair, min(2 * pair + 2, len(vector))):
            draw = (chances >> odd if c & 1 else (chances & np.uint64(0xFFFFFFFF)) >> even) & rest
            t = np.uint64(np.rint(np.float64(abs(vector[c])) / np.float64(norm) * grid))
            level = np.int64((t >> np.uint64(shift)) + np.uint64(draw < (t & rest)))
            digits[c] += -level if vector[c] < 0 else level


@_compile
def pack(digits, base, together, bits, first, words):  # type: ignore
    """Write numbers of `together` digits each, lowest digit first, end to end in `bits` bits from bit `first` on.

    `words` must be 0 from there on.
    """
    position = first
    for start in range(0, len(digits), together):
        number, power = np.uint64(0), np.uint64(1)
        for c in range(start, min(start + together, len(digits))):
            number += np.uint64(digits[c]) * power
            power *= np.uint64(base)
        word, shift = position >> 6, np.uint64(position & 63)
        words[word] |= number << shift
        if shift:
            beyond = number >> (np.uint64(64) - shift)
            if beyond:
                words[word + 1] |= beyond
        position += bits


@_compile
def unpack(words, values, together, bits, first, out):  # type: ignore
    """Read what `pack` wrote, and write values[digit] for each digit; the base is the number of values."""
    base, mask = np.uint64(len(values)), (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    position = first
    for start in range(0, len(out), together):
        word, shift = position >> 6, np.uint64(position & 63)
        number = words[word] >> shift
        if shift and word + 1 < len(words):
            number |= words[word + 1] << (np.uint64(64) - shift)
        number &= mask
        for c in range(start, min(start + together, len(out))):
            rest = number // base
            out[c] = values[number - rest * base]
            number = rest
        position += bits
