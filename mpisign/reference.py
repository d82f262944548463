"""The kernels and the vote in plain NumPy, all workers in one array: the specification that tests compare with.

Written to be read, not to be fast. Floats are float32, and each operation is rounded to it.
"""

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
