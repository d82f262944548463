"""The loops between coordinates and words. One block does one tile: TILE words of one parameter.

A thread treats four neighbouring coordinates at a time, so that a warp reads 512 bytes at once, and stages their four bits
in shared memory; then each thread writes 16 bits. So no warp votes are needed, which the simulator doesn't have.

All arguments are int64: addresses, numbers, keys. `tiles` is int64[T, 2], a tile's parameter and its first word therein;
`table` holds address, numel and start (the first word) of each parameter as int64[3, P], then its factors, float32[F, P].
"""

import numpy as np
from numba import cuda

from .memory import (
    THREADS,
    add,
    bit,
    clear_bits,
    coin,
    device,
    divide,
    is_finite,
    kernel,
    load_float,
    load_long,
    load_word,
    multiply,
    nearest,
    read,
    store_byte,
    store_float,
    store_short,
    write,
)

TILE = THREADS // 4
"""Words of a tile: 16 coordinates a thread."""

PLUS, COIN, MINUS = 0, 1, 2

_GROUPS = 4 * THREADS  # of four coordinates in a tile
_HALF = np.float32(1 << 23)


@device
def factor(table, parameters, number, p):  # type: ignore
    """Factor `number` of parameter p."""
    return load_float(table + 24 * parameters + 4 * (number * parameters + p))


@device
def _mixed(old, new, beta, gamma):  # type: ignore
    return add(multiply(beta, old), multiply(gamma, new)) if is_finite(new) else old


@device
def _bits(a, b, c, d):  # type: ignore
    return (1 if a else 0) | (2 if b else 0) | (4 if c else 0) | (8 if d else 0)


@device
def _sixteen(nibbles, thread):  # type: ignore
    """The bits of four groups in a row."""
    first = 4 * thread
    low = np.int64(nibbles[first]) | (np.int64(nibbles[first + 1]) << 4)
    return np.uint16(low | (np.int64(nibbles[first + 2]) << 8) | (np.int64(nibbles[first + 3]) << 12))


@device
def _abstain(p, header, flag):  # type: ignore
    clear_bits(header + 8 * (p >> 6), ~(np.uint64(1) << np.uint64(p & 63)))
    store_byte(flag, np.uint8(0))


@kernel
def momentum_signs(  # type: ignore
    tiles, table, parameters, momentum, interpolates, rule, key, offset, header, finite, words
):
    """v ← βv + γg and the ballot of v; factors β, γ and, where it interpolates, β₂, γ₂: v becomes β₂v + γ₂g.

    `header` holds the bits of the parameters with a gradient, `finite` a byte 1; where a g is not finite both are cleared.
    """
    nibbles = cuda.shared.array(_GROUPS, np.uint8)
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    gradient, numel = load_long(table + 8 * p), load_long(table + 8 * (parameters + p))
    start = load_long(table + 8 * (2 * parameters + p))
    velocity = momentum + 256 * start
    wide = ((gradient | velocity) & 15) == 0
    beta, gamma = factor(table, parameters, 0, p), factor(table, parameters, 1, p)
    kept_beta, kept_gamma = beta, gamma
    if interpolates:
        kept_beta, kept_gamma = factor(table, parameters, 2, p), factor(table, parameters, 3, p)
    sound = True
    for turn in range(4):
        group = turn * THREADS + thread
        e, bits = 64 * first + 4 * group, 0
        if gradient != 0 and e < numel:
            size = min(4, numel - e)
            a, b, c, d = read(gradient + 4 * e, size, wide)
            sound = sound and is_finite(a) and is_finite(b) and is_finite(c) and is_finite(d)
            if momentum != 0:
                i, j, k, m = read(velocity + 4 * e, size, wide)
                w, x = _mixed(i, a, kept_beta, kept_gamma), _mixed(j, b, kept_beta, kept_gamma)
                y, z = _mixed(k, c, kept_beta, kept_gamma), _mixed(m, d, kept_beta, kept_gamma)
                write(velocity + 4 * e, size, wide, w, x, y, z)
                if interpolates:
                    w, x = _mixed(i, a, beta, gamma), _mixed(j, b, beta, gamma)
                    y, z = _mixed(k, c, beta, gamma), _mixed(m, d, beta, gamma)
                a, b, c, d = w, x, y, z
            none = np.float32(0)
            bits = _bits(a < none, b < none, c < none, d < none)
            if rule != PLUS:
                zero = _bits(a == none, b == none, c == none, d == none) & ((1 << size) - 1)
                if zero != 0 and rule == COIN:
                    chances = coin(key, offset + start + first + (group >> 4))
                    zero &= np.int64((chances >> np.uint64(4 * (group & 15))) & np.uint64(15))
                bits |= zero
        nibbles[group] = np.uint8(bits)
    if cuda.syncthreads_or(0 if sound else 1) and thread == 0:
        _abstain(p, header, finite)
    if first + (thread >> 2) < (numel + 63) >> 6:
        store_short(words + 8 * (start + first) + 2 * thread, _sixteen(nibbles, thread))


@device
def _falls(draw, value, norm):  # type: ignore
    """Negative with probability ½ − ½·value/norm, for 24 random bits."""
    return np.int64(draw) < (1 << 23) - nearest(multiply(_HALF, divide(value, norm)))


@kernel
def stochastic_signs(tiles, table, parameters, norm, key, offset, header, votes, words):  # type: ignore
    """The ballot of stochastic signs of the vector whose norm stands at `norm`; coins are numbered by coordinate.

    `header` holds the bits of the parameters with a vector, `votes` a byte 1; with a norm that is 0 or not finite both are
    cleared.
    """
    nibbles = cuda.shared.array(_GROUPS, np.uint8)
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    vector, numel = load_long(table + 8 * p), load_long(table + 8 * (parameters + p))
    start, length = load_long(table + 8 * (2 * parameters + p)), load_float(norm)
    able, mask = is_finite(length) and length > np.float32(0), np.uint64((1 << 24) - 1)
    for turn in range(4):
        group = turn * THREADS + thread
        e, bits = 64 * first + 4 * group, 0
        if vector != 0 and able and e < numel:
            size = min(4, numel - e)
            a, b, c, d = read(vector + 4 * e, size, (vector & 15) == 0)
            number = 32 * (offset + start + first) + 2 * group
            one, two = coin(key, number), coin(key, number + 1)
            bits = _bits(
                _falls((one >> np.uint64(8)) & mask, a, length),
                _falls(one >> np.uint64(40), b, length),
                _falls((two >> np.uint64(8)) & mask, c, length),
                _falls(two >> np.uint64(40), d, length),
            ) & ((1 << size) - 1)
        nibbles[group] = np.uint8(bits)
    cuda.syncthreads()
    if not able and thread == 0:
        _abstain(p, header, votes)
    if first + (thread >> 2) < (numel + 63) >> 6:
        store_short(words + 8 * (start + first) + 2 * thread, _sixteen(nibbles, thread))


@device
def _moved(value, negative, tied, number, step, decay):  # type: ignore
    move = step if bit(negative, number) else -step
    return add(multiply(decay, value), np.float32(0) if bit(tied, number) else move)


@kernel
def descend(tiles, table, parameters, header, words, ties):  # type: ignore
    """x ← decay·x − step·sign of what the header says is decided; factors step and decay; `ties` may be 0."""
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    x, numel = load_long(table + 8 * p), load_long(table + 8 * (parameters + p))
    start = load_long(table + 8 * (2 * parameters + p))
    if x == 0 or not bit(load_word(header + 8 * (p >> 6)), p & 63):
        return
    wide, step, decay = (x & 15) == 0, factor(table, parameters, 0, p), factor(table, parameters, 1, p)
    for turn in range(4):
        group = turn * THREADS + thread
        e = 64 * first + 4 * group
        if e < numel:
            size, word, number = min(4, numel - e), 8 * (start + (e >> 6)), e & 63
            negative = load_word(words + word)
            tied = load_word(ties + word) if ties else np.uint64(0)
            a, b, c, d = read(x + 4 * e, size, wide)
            a = _moved(a, negative, tied, number, step, decay)
            b = _moved(b, negative, tied, number + 1, step, decay)
            c = _moved(c, negative, tied, number + 2, step, decay)
            d = _moved(d, negative, tied, number + 3, step, decay)
            write(x + 4 * e, size, wide, a, b, c, d)


@kernel
def unpack(words, ties, numel, out):  # type: ignore
    """The signs of one parameter: +1 for a bit 0, −1 for a bit 1, 0 for a tie; `ties` may be 0."""
    e = np.int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
    if e < numel:
        sign = np.float32(-1) if bit(load_word(words + 8 * (e >> 6)), e & 63) else np.float32(1)
        if ties and bit(load_word(ties + 8 * (e >> 6)), e & 63):
            sign = np.float32(0)
        store_float(out + 4 * e, sign)


@device
def _left(value, word, number, scale):  # type: ignore
    return add(value, scale if bit(word, number) else -scale)


@kernel
def residuals(tiles, table, parameters, moved, header, words, errors):  # type: ignore
    """e ← p − scale·sign of the parameters that the header names; `moved` holds p; one factor, the scale."""
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    if not bit(load_word(header + 8 * (p >> 6)), p & 63):
        return
    wide, scale = ((moved | errors) & 15) == 0, factor(table, parameters, 0, p)
    for turn in range(4):
        group = turn * THREADS + thread
        e = 64 * first + 4 * group
        if e < numel:
            size, at, number = min(4, numel - e), 4 * (64 * start + e), e & 63
            word = load_word(words + 8 * (start + (e >> 6)))
            a, b, c, d = read(moved + at, size, wide)
            a, b = _left(a, word, number, scale), _left(b, word, number + 1, scale)
            c, d = _left(c, word, number + 2, scale), _left(d, word, number + 3, scale)
            write(errors + at, size, wide, a, b, c, d)


@device
def _summed(voters, planes, stride, size, index, number):  # type: ignore
    count = 0
    for k in range(size):
        count += np.int64(bit(load_word(planes + 8 * (k * stride + index)), number)) << k
    return np.float32(voters - 2 * count)


@kernel
def sign_sums(tiles, table, parameters, planes, stride, size, voters, sums):  # type: ignore
    """voters − 2·count as float32 for the counts in `size` bit-sliced planes of `stride` words; whole words, padding too."""
    thread, tile = cuda.threadIdx.x, cuda.blockIdx.x
    p, first = load_long(tiles + 16 * tile), load_long(tiles + 16 * tile + 8)
    numel, start = load_long(table + 8 * (parameters + p)), load_long(table + 8 * (2 * parameters + p))
    votes = load_long(voters + 8 * p)
    for turn in range(4):
        group = turn * THREADS + thread
        e = 64 * first + 4 * group
        if e < numel + 63 & ~63:
            index, number = start + (e >> 6), e & 63
            write(
                sums + 4 * (64 * start + e),
                4,
                (sums & 15) == 0,
                _summed(votes, planes, stride, size, index, number),
                _summed(votes, planes, stride, size, index, number + 1),
                _summed(votes, planes, stride, size, index, number + 2),
                _summed(votes, planes, stride, size, index, number + 3),
            )
