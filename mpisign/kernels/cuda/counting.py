"""The loops over words: ballots counted, compared, and added. Arguments as in `signs`, with tiles of THREADS words.

A thread holds the counters of one word, 64 coordinates, in registers: bit-sliced, as on the CPU.
"""

import numpy as np
from numba import cuda

from .memory import (
    THREADS,
    add64,
    add_long,
    bit,
    coin,
    device,
    divide64,
    kernel,
    load_float,
    load_long,
    load_word,
    narrow,
    store_byte,
    store_float,
    store_long,
    store_word,
)

BATCH = 31
"""Ballots that `add_ballots` takes at once: as many as five planes can count."""


@device
def _votes(message, p):  # type: ignore
    """1 where a message's header has parameter p, else 0."""
    return bit(load_word(message + 8 * (p >> 6)), p & 63)


@device
def _anything(message, parameters):  # type: ignore
    """Whether a message's header has any parameter; bits beyond the last one don't count."""
    for h in range((parameters + 63) >> 6):
        word, left = load_word(message + 8 * h), parameters - 64 * h
        if left < 64:
            word &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        if word != np.uint64(0):
            return True
    return False


@kernel
def add_ballots(  # type: ignore
    tiles, table, parameters, ballots, size, header, planes, stride, used, needed, voters, count
):
    """Add up to BATCH ballots to bit-sliced counters: `used` planes before, `needed` after; a word abstained on counts 0.

    `ballots` holds their addresses, int64[size]. `voters` int64[P] grows by those who vote on each parameter, `count` by
    those who vote on anything.
    """
    thread, tile, zero = cuda.threadIdx.x, cuda.blockIdx.x, np.uint64(0)
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    if tile == 0:
        for n in range(thread, size, THREADS):
            if _anything(load_long(ballots + 8 * n), parameters):
                add_long(count, 1)
    if first == 0 and thread == 0:
        votes = load_long(voters + 8 * p)
        for n in range(size):
            votes += np.int64(_votes(load_long(ballots + 8 * n), p))
        store_long(voters + 8 * p, votes)
    if first + thread >= (numel + 63) >> 6:
        return
    index = start + first + thread
    a, b, c, d, e = zero, zero, zero, zero, zero
    for n in range(size):
        message = load_long(ballots + 8 * n)
        word = load_word(message + 8 * (header + index))
        if not _votes(message, p):
            word = zero
        a, word = a ^ word, a & word
        b, word = b ^ word, b & word
        c, word = c ^ word, c & word
        d, word = d ^ word, d & word
        e ^= word
    carry = zero
    for k in range(needed):
        place = planes + 8 * (k * stride + index)
        plane = load_word(place) if k < used else zero
        both, keep = plane ^ a, plane & a
        store_word(place, both ^ carry)
        carry = keep | (both & carry)
        a, b, c, d, e = b, c, d, e, zero


@kernel
def add_counters(planes, stride, used, addend, added, needed):  # type: ignore
    """Add `added` bit-sliced planes to `used` ones, `needed` after; both have `stride` words each."""
    index, carry, zero = np.int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x, np.uint64(0), np.uint64(0)
    if index < stride:
        for k in range(needed):
            at = 8 * (k * stride + index)
            mine = load_word(planes + at) if k < used else zero
            other = load_word(addend + at) if k < added else zero
            both, keep = mine ^ other, mine & other
            store_word(planes + at, both ^ carry)
            carry = keep | (both & carry)


@kernel
def majority(  # type: ignore
    tiles, table, parameters, planes, stride, needed, voters, count, rule, key, offset, message, words, ties
):
    """Bit 1 where more than half of a parameter's voters are negative; ties by rule: 0 plus, 1 coin, 2 abstain.

    Writes all of the verdict's message: the header (who is decided), the number of voters, words and ties.
    """
    thread, tile, zero = cuda.threadIdx.x, cuda.blockIdx.x, np.uint64(0)
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    if first == 0 and thread == 0 and p & 63 == 0:
        decided = zero
        for q in range(p, min(p + 64, parameters)):
            if load_long(voters + 8 * q) > 0:
                decided |= np.uint64(1) << np.uint64(q - p)
        store_word(message + 8 * (p >> 6), decided)
        if p == 0:
            store_long(message + 8 * ((parameters + 63) >> 6), load_long(count))
    if first + thread >= (numel + 63) >> 6:
        return
    index, votes = start + first + thread, load_long(voters + 8 * p)
    above, equal, half = zero, ~zero, votes >> 1
    for turn in range(needed):
        k = needed - 1 - turn
        plane = load_word(planes + 8 * (k * stride + index))
        if (half >> k) & 1:
            equal &= plane
        else:
            above |= equal & plane
            equal &= ~plane
    if votes == 0 or votes & 1:
        equal = zero
    if rule == 1 and equal != zero:
        above |= equal & coin(key, offset + index)
    store_word(words + 8 * index, above)
    if rule == 2:
        store_word(ties + 8 * index, equal)


@kernel
def disagreement(tiles, table, parameters, ballot, header, words, out):  # type: ignore
    """Add to out[0] the coordinates in which a ballot and a verdict differ, to out[1] those that the ballot votes on."""
    sums = cuda.shared.array(THREADS, np.int32)
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    counted, index, differ = _votes(ballot, p), start + first + thread, 0
    if counted and first + thread < (numel + 63) >> 6:
        differ = cuda.popc(load_word(ballot + 8 * (header + index)) ^ load_word(words + 8 * index))
    sums[thread] = differ
    reach = THREADS // 2
    while reach > 0:
        cuda.syncthreads()
        if thread < reach:
            sums[thread] += sums[thread + reach]
        reach >>= 1
    if thread == 0 and counted:
        add_long(out, np.int64(sums[0]))
        if first == 0:
            add_long(out + 8, numel)


@kernel
def scaled_sign_means(tiles, table, parameters, ballots, size, length, scales, firsts, present, means):  # type: ignore
    """The voters' mean of scale·sign: added in float64 from rank 0 on, divided, and rounded to float32 once.

    `ballots` uint64[size, length], `scales` float32[size, P]; parameter p's means begin at firsts[p], int64[P]; `present`
    receives bool[size, P].
    """
    thread, tile, header = cuda.threadIdx.x, cuda.blockIdx.x, (parameters + 63) >> 6
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    place, voters = means + 4 * load_long(firsts + 8 * p), 0
    for n in range(size):
        here = _votes(ballots + 8 * n * length, p)
        voters += np.int64(here)
        if first == 0 and thread == 0:
            store_byte(present + n * parameters + p, np.uint8(here))
    for turn in range(16):
        e = 64 * first + turn * THREADS + thread
        if e < numel:
            total = np.float64(0)
            for n in range(size):
                message = ballots + 8 * n * length
                if _votes(message, p):
                    scale = np.float64(load_float(scales + 4 * (n * parameters + p)))
                    word = load_word(message + 8 * (header + start + (e >> 6)))
                    total = add64(total, -scale if bit(word, e & 63) else scale)
            store_float(place + 4 * e, narrow(divide64(total, np.float64(voters))) if voters else np.float32(0))
