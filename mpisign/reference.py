"""The kernels and the vote in plain NumPy, all workers in one array: the specification that tests compare with.

Written to be read, not to be fast. Floats are float32, and each operation is rounded to it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.bool_]


def pack(bits: Bits) -> Words:
    """bool[d] -> uint64[ceil(d/64)]: bit j of word i is element 64·i + j, padding is 0."""
    padded = np.zeros(-(-len(bits) // 64) * 64, np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view(np.uint64)


def unpack(words: Words, numel: int) -> Bits:
    """uint64[ceil(d/64)] -> bool[d]."""
    return np.unpackbits(words.view(np.uint8), bitorder="little", count=numel).view(np.bool_)


def coins(key: int, words: int, first: int = 0) -> Words:
    """64 fair bits a word: splitmix64 at positions first, first + 1, … of stream `key`."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.arange(first + 1, first + words + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def momentum(velocity: Floats, gradient: Floats, beta: float, gamma: float) -> Floats:
    """v ← βv + γg where g is finite, v elsewhere; two products and a sum, each rounded to float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        new = np.float32(beta) * velocity + np.float32(gamma) * gradient
    return np.where(np.isfinite(gradient), new, velocity)


def negatives(values: Floats, zero: str = "plus", key: int = 0, first: int = 0) -> Bits:
    """The ballot of float32[d]: v < 0; a zero (of either sign) votes 0 by "plus", or a coin by "coin"."""
    with np.errstate(invalid="ignore"):
        bits = values < 0
    if zero == "coin":
        words = -(-len(values) // 64)
        bits = np.where(values == 0, unpack(coins(key, words, first), len(values)), bits)
    return bits


def majority(ballots: Bits, tie: str = "plus", key: int = 0, first: int = 0) -> tuple[Bits, Bits]:
    """bool[n, d] -> (negative bool[d], tied bool[d]); a tie is + by "plus" and "abstain", a coin by "coin"."""
    workers, numel = ballots.shape
    count = ballots.sum(axis=0)
    tied = (2 * count == workers) & (workers > 0)
    verdict = 2 * count > workers
    if tie == "coin":
        verdict = np.where(tied, unpack(coins(key, -(-numel // 64), first), numel), verdict)
    return verdict, tied


def descend(parameter: Floats, negative: Bits, step: float, decay: float, tied: Bits | None = None) -> Floats:
    """x ← decay·x − step·sign, with sign 0 where tied."""
    move = np.where(negative, np.float32(step), -np.float32(step))
    if tied is not None:
        move = np.where(tied, np.float32(0), move)
    return np.float32(decay) * parameter + move


def power_sum(vector: Floats, power: int) -> float:
    """Σ|v|^power, power 1 or 2, in float64: lane j of 8 adds coordinates j, j + 8, …; then the lanes from 0 on."""
    padded = np.zeros(-(-len(vector) // 8) * 8 + 8)
    padded[8 : 8 + len(vector)] = np.abs(vector.astype(np.float64)) ** power
    lanes = np.cumsum(padded.reshape(-1, 8), axis=0)[-1]
    return float(np.cumsum(lanes)[-1])


def l2_norm(vectors: Sequence[Floats]) -> np.float32:
    """The norm of all vectors as one: the sums of squares in order, the root in float64, rounded to float32."""
    total = 0.0
    for vector in vectors:
        total += power_sum(vector, 2)
    with np.errstate(over="ignore"):
        return np.float32(np.sqrt(total))


def stochastic_negatives(vector: Floats, norm: float, key: int, first: int = 0) -> Bits:
    """Negative where u < 2²³ − k, for k = rint(2²³·v/norm) and 24 random bits u: with probability ½ − ½·v/norm.

    The vector starts at word `first`; coordinate c takes bits 8…31 (c even) or 40…63 (c odd) of coin (32·first) + (c >> 1).
    """
    both = coins(key, -(-len(vector) // 2), 32 * first)
    draws = np.stack([both >> np.uint64(8) & np.uint64(0xFFFFFF), both >> np.uint64(40)], axis=1)
    threshold = 2**23 - np.rint(np.float32(2**23) * (vector / np.float32(norm))).astype(np.int64)
    bits: Bits = draws.reshape(-1)[: len(vector)].astype(np.int64) < threshold
    return bits


def sign_sum(ballots: Bits) -> Floats:
    """bool[n, d] -> float32[d]: the sum of the signs, n − 2·(negative ones)."""
    total: Floats = (len(ballots) - 2 * ballots.sum(axis=0)).astype(np.float32)
    return total


def scaled_sign_mean(ballots: Bits, scales: Floats) -> Floats:
    """bool[n, d], float32[n] -> float32[d]: the mean of scale·sign, in float64 from rank 0 on, rounded once."""
    total = np.zeros(ballots.shape[1])
    for negative, scale in zip(ballots, scales.astype(np.float64), strict=True):
        total += np.where(negative, -scale, scale)
    return (total / len(ballots)).astype(np.float32)


def move(parameter: Floats, direction: Floats, step: float, decay: float) -> Floats:
    """x ← decay·x − step·direction: two products and a difference, each rounded to float32."""
    return np.float32(decay) * parameter - np.float32(step) * direction


def qsgd_levels(vector: Floats, norm: float, levels: int, key: int) -> npt.NDArray[np.int64]:
    """float32[d] -> −s … s: sign·(⌊a⌋, or one more with probability a − ⌊a⌋), a = s·|v|/norm, in fractions of 2^−k.

    s·2^k is the largest such number up to 2²³; coordinate c takes the upper k of bits 8…31 (c even) or 40…63 (c odd) of
    coin c >> 1.
    """
    bits = 23 - (levels - 1).bit_length()
    both = coins(key, -(-len(vector) // 2))
    draws = np.stack([both >> np.uint64(8), both >> np.uint64(40)], axis=1).reshape(-1)[: len(vector)]
    draws = (draws & np.uint64(2**24 - 1)) >> np.uint64(24 - bits)
    if norm == 0:
        return np.zeros(len(vector), np.int64)
    parts = np.rint(np.abs(vector.astype(np.float64)) / np.float64(norm) * (levels << bits)).astype(np.uint64)
    up = draws < (parts & np.uint64((1 << bits) - 1))
    return np.where(vector < 0, -1, 1) * ((parts >> np.uint64(bits)).astype(np.int64) + up)
