"""The loops over coordinates and words, compiled by Numba for the CPU; the only file that imports it.

Addresses instead of arrays: one call serves all parameters of a model, wherever torch put them. An address of 0 stands
for a tensor that isn't there. The intrinsics work on 64 floats and one word at a time in LLVM's vector form, which it
lowers to the machine's own mask instructions (movemask, opmask) on x86 and Arm alike.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_F32, _I1, _I32, _I64 = ir.FloatType(), ir.IntType(1), ir.IntType(32), ir.IntType(64)
_F32X64, _I32X64, _I1X64 = (ir.VectorType(kind, 64) for kind in (_F32, _I32, _I1))


def _constant(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _splat(builder: Any, scalar: Any) -> Any:
    vector = builder.insert_element(ir.Constant(_F32X64, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(vector, vector, _constant(_I32X64, 0))


def _load(builder: Any, address: Any, kind: Any = _F32X64) -> Any:
    # torch aligns to 64 bytes, but a view may start anywhere
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _finite(builder: Any, floats: Any) -> Any:
    exponent = builder.and_(builder.bitcast(floats, _I32X64), _constant(_I32X64, 0x7F800000))
    return builder.icmp_unsigned("!=", exponent, _constant(_I32X64, 0x7F800000))


def _sign_words(context: Any, builder: Any, values: Any, finite: Any) -> Any:
    zero = _constant(_F32X64, 0.0)
    masks = (builder.fcmp_ordered("<", values, zero), builder.fcmp_ordered("==", values, zero), builder.not_(finite))
    words = [builder.bitcast(mask, _I64) for mask in masks]
    return context.make_tuple(builder, types.UniTuple(types.uint64, 3), words)


@intrinsic
def _signs64(_typing: Any, gradient: Any) -> Any:
    """64 floats -> words: negative, zero, not finite."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        values = _load(builder, args[0])
        return _sign_words(context, builder, values, _finite(builder, values))

    return types.UniTuple(types.uint64, 3)(types.int64), generate


@intrinsic
def _momentum64(_typing: Any, momentum: Any, gradient: Any, beta: Any, gamma: Any) -> Any:
    """v ← βv + γg for 64 floats, where g is finite -> words of v: negative, zero; and of g: not finite."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        old, gradient = _load(builder, args[0]), _load(builder, args[1])
        finite = _finite(builder, gradient)
        new = builder.fadd(
            builder.fmul(_splat(builder, args[2]), old), builder.fmul(_splat(builder, args[3]), gradient)
        )
        new = builder.select(finite, new, old)
        _store(builder, new, args[0])
        return _sign_words(context, builder, new, finite)

    return types.UniTuple(types.uint64, 3)(types.int64, types.int64, types.float32, types.float32), generate


@intrinsic
def _interpolated64(
    _typing: Any, momentum: Any, gradient: Any, beta: Any, gamma: Any, kept_beta: Any, kept_gamma: Any
) -> Any:
    """v ← β₂v + γ₂g for 64 floats, where g is finite -> words of the old βv + γg: negative, zero; and of g: not finite."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        old, gradient = _load(builder, args[0]), _load(builder, args[1])
        finite = _finite(builder, gradient)

        def mixed(beta: Any, gamma: Any) -> Any:
            new = builder.fadd(builder.fmul(_splat(builder, beta), old), builder.fmul(_splat(builder, gamma), gradient))
            return builder.select(finite, new, old)

        _store(builder, mixed(args[4], args[5]), args[0])
        return _sign_words(context, builder, mixed(args[2], args[3]), finite)

    return types.UniTuple(types.uint64, 3)(types.int64, types.int64, *[types.float32] * 4), generate


@intrinsic
def _descend64(_typing: Any, parameter: Any, negative: Any, tied: Any, step: Any, decay: Any) -> Any:
    """x ← decay·x − step·(1 − 2·negative), and decay·x where tied, for 64 floats."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address, negative, tied, step, decay = args
        up, down = _splat(builder, step), _splat(builder, builder.fneg(step))
        move = builder.select(builder.bitcast(negative, _I1X64), up, down)
        move = builder.select(builder.bitcast(tied, _I1X64), _constant(_F32X64, 0.0), move)
        _store(builder, builder.fadd(builder.fmul(_load(builder, address), _splat(builder, decay)), move), address)
        return None

    return types.void(types.int64, types.uint64, types.uint64, types.float32, types.float32), generate


@intrinsic
def _load1(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _load(builder, args[0], _F32)

    return types.float32(types.int64), generate


@intrinsic
def _store1(_typing: Any, address: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        _store(builder, args[1], args[0])
        return None

    return types.void(types.int64, types.float32), generate


@intrinsic
def _load_word(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _load(builder, args[0], _I64)

    return types.uint64(types.int64), generate


@intrinsic
def _popcount(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


_compile = njit(cache=True, nogil=True, error_model="numpy")


@_compile
def coin(key: int, counter: int) -> int:
    """64 fair bits for (key, counter): splitmix64 (Steele, Lea, Flood 2014) at position `counter` of stream `key`."""
    z = np.uint64(key) + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_compile
def _in_turn(i, words, streams):  # type: ignore
    """The word to treat as number i of so many: one of each 2**streams-th part in turn, then the rest.

    Four or eight streams through memory are a fifth faster than one: when one stands at the end of a page, beyond which
    no prefetcher goes, the others still run. Too many, and they are no longer followed.
    """
    part = words >> streams
    return (i & ((1 << streams) - 1)) * part + (i >> streams) if i < part << streams else i


PLUS, COIN, MINUS = 0, 1, 2
"""Rules for a coordinate of exactly 0: the sign that its bit stands for."""


@_compile
def _zeros(zero, rule, key, number):  # type: ignore
    """The bits of those zeros that count as negative; `number` is the word's in the whole layout."""
    if rule == PLUS or zero == 0:
        return np.uint64(0)
    return zero & coin(key, number) if rule == COIN else zero


@_compile
def momentum_signs(gradients, momentum, numels, starts, betas, gammas, kept, rule, key, offset, finite, words):  # type: ignore
    """v ← βv + γg and the ballot of v, in one pass; `finite` receives whether all coordinates of each g are.

    `momentum` is the address of float32[64·len(words)], or 0 for the ballot of g itself. Where `kept` is float32[2, P] and
    not empty, the ballot is that of βv + γg, but v becomes kept[0]·v + kept[1]·g.
    """
    interpolates = kept.shape[1] > 0
    for p in range(len(numels)):
        start, full, gradient = starts[p], numels[p] >> 6, gradients[p]
        velocity = momentum + 256 * start
        beta, gamma = betas[p], gammas[p]
        bad_words = 0
        finite[p] = True
        if gradient == 0:
            words[start : start + ((numels[p] + 63) >> 6)] = np.uint64(0)
            continue
        if momentum == 0:
            for turn in range(full):
                i = _in_turn(turn, full, 3)
                negative, zero, bad = _signs64(gradient + 256 * i)
                words[start + i] = negative | _zeros(zero, rule, key, offset + start + i)
                bad_words += bad != 0
        elif interpolates:
            for turn in range(full):
                i = _in_turn(turn, full, 2)
                negative, zero, bad = _interpolated64(
                    velocity + 256 * i, gradient + 256 * i, beta, gamma, kept[0, p], kept[1, p]
                )
                words[start + i] = negative | _zeros(zero, rule, key, offset + start + i)
                bad_words += bad != 0
        else:
            for turn in range(full):
                i = _in_turn(turn, full, 2)
                negative, zero, bad = _momentum64(velocity + 256 * i, gradient + 256 * i, beta, gamma)
                words[start + i] = negative | _zeros(zero, rule, key, offset + start + i)
                bad_words += bad != 0
        if numels[p] & 63:
            negative, zero = np.uint64(0), np.uint64(0)
            for e in range(64 * full, numels[p]):
                bit = np.uint64(1) << np.uint64(e & 63)
                value = _load1(gradient + 4 * e)
                sound = np.isfinite(value)
                bad_words += not sound
                if momentum != 0:
                    old, new = _load1(velocity + 4 * e), value
                    value = beta * old + gamma * new if sound else old
                    if sound:
                        _store1(velocity + 4 * e, kept[0, p] * old + kept[1, p] * new if interpolates else value)
                if value < np.float32(0):
                    negative |= bit
                elif value == np.float32(0):
                    zero |= bit
            words[start + full] = negative | _zeros(zero, rule, key, offset + start + full)
        finite[p] = bad_words == 0


@_compile
def descend(parameters, numels, starts, words, ties, steps, decays):  # type: ignore
    """x ← decay·x − step·sign, where sign is +1 for a bit 0, −1 for a bit 1, and 0 for a tie; `ties` may be empty."""
    for p in range(len(numels)):
        start, full, parameter = starts[p], numels[p] >> 6, parameters[p]
        step, decay = steps[p], decays[p]
        if parameter == 0:
            continue
        if len(ties) == 0:
            for turn in range(full):
                i = _in_turn(turn, full, 2)
                _descend64(parameter + 256 * i, words[start + i], np.uint64(0), step, decay)
        else:
            for turn in range(full):
                i = _in_turn(turn, full, 2)
                _descend64(parameter + 256 * i, words[start + i], ties[start + i], step, decay)
        for e in range(64 * full, numels[p]):
            shift = np.uint64(e & 63)
            move = step if (words[start + full] >> shift) & np.uint64(1) else -step
            if len(ties) and (ties[start + full] >> shift) & np.uint64(1):
                move = np.float32(0)
            _store1(parameter + 4 * e, decay * _load1(parameter + 4 * e) + move)


@_compile
def unpack(words, ties, out):  # type: ignore
    """The signs of one parameter as float32: +1 for a bit 0, −1 for a bit 1, 0 for a tie."""
    for e in range(len(out)):
        shift = np.uint64(e & 63)
        out[e] = np.float32(1) - np.float32(2) * np.float32((words[e >> 6] >> shift) & np.uint64(1))
        if len(ties) and (ties[e >> 6] >> shift) & np.uint64(1):
            out[e] = np.float32(0)


BATCH = 31
"""Ballots that `add_ballots` takes at once: as many as five planes can count."""

_BLOCK = 64  # words: what a block needs stays in the first-level cache
_I64X8 = ir.VectorType(_I64, 8)


@intrinsic
def _count8(_typing: Any, ballots: Any, size: Any, offset: Any, planes: Any, stride: Any) -> Any:
    """Count `size` ballots, 8 words of each, into five planes kept in registers, by a tree of carry-save adders."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        ballots, size, offset, planes, stride = args
        zero = ir.Constant(_I64X8, [0] * 8)
        counters = [cgutils.alloca_once_value(builder, zero) for _ in range(5)]

        def ballot(index: Any) -> Any:
            start = _load(builder, builder.add(ballots, builder.mul(index, ir.Constant(_I64, 8))), _I64)
            return _load(builder, builder.add(start, offset), _I64X8)

        def absorb(first: Any, count: int) -> None:
            """Add `count` ballots, a power of two: pairs at the lowest level, their carries as pairs at the next."""
            inputs = [ballot(builder.add(first, ir.Constant(_I64, i))) for i in range(count)]
            for counter in counters:
                plane, carries = builder.load(counter), []
                for one, two in zip(inputs[::2], inputs[1::2], strict=False):
                    either = builder.xor(one, two)
                    carries.append(builder.or_(builder.and_(one, two), builder.and_(plane, either)))
                    plane = builder.xor(plane, either)
                if len(inputs) == 1:
                    carries.append(builder.and_(plane, inputs[0]))
                    plane = builder.xor(plane, inputs[0])
                builder.store(plane, counter)
                inputs = carries

        with cgutils.for_range(builder, builder.lshr(size, ir.Constant(_I64, 3))) as loop:
            absorb(builder.shl(loop.index, ir.Constant(_I64, 3)), 8)
        done = builder.and_(size, ir.Constant(_I64, ~7))
        for count in (4, 2, 1):
            bit = builder.and_(size, ir.Constant(_I64, count))
            with builder.if_then(builder.icmp_unsigned("!=", bit, ir.Constant(_I64, 0))):
                absorb(done, count)
            done = builder.add(done, bit)
        for k, counter in enumerate(counters):
            address = builder.add(planes, builder.mul(stride, ir.Constant(_I64, k)))
            _store(builder, builder.load(counter), address)
        return None

    return types.void(types.int64, types.int64, types.int64, types.int64, types.int64), generate


@_compile
def _count(ballots, first, size, counted):  # type: ignore
    """Count `size` words of up to BATCH ballots, from word `first` on, into five planes."""
    for i in range(0, size & ~7, 8):
        address = counted.ctypes.data + 8 * i
        _count8(ballots.ctypes.data, len(ballots), 8 * (first + i), address, 8 * _BLOCK)
    for i in range(size & ~7, size):
        for k in range(5):
            counted[k, i] = np.uint64(0)
        for ballot in ballots:
            word = _load_word(ballot + 8 * (first + i))
            for k in range(5):
                counted[k, i], word = counted[k, i] ^ word, counted[k, i] & word


@_compile
def _sum(planes, used, first, size, counted, needed, carry):  # type: ignore
    """Add `used` planes to the `needed` counted ones, in place; planes beyond the fifth were not counted yet."""
    carry[:size] = np.uint64(0)
    for k in range(needed):
        own = counted[k, :size]
        if k >= 5:
            own[:] = np.uint64(0)
        if k < used:
            plane = planes[k, first : first + size]
            for i in range(size):
                both = plane[i] ^ own[i]
                keep = plane[i] & own[i]
                own[i] = both ^ carry[i]
                carry[i] = keep | (both & carry[i])
        else:
            for i in range(size):
                keep = own[i] & carry[i]
                own[i] ^= carry[i]
                carry[i] = keep


@_compile
def add_ballots(planes, used, needed, ballots):  # type: ignore
    """Add up to BATCH ballots, given by their addresses, to bit-sliced counters: `used` planes before, `needed` after."""
    counted, carry = np.empty((max(5, needed), _BLOCK), np.uint64), np.empty(_BLOCK, np.uint64)
    for first in range(0, planes.shape[1], _BLOCK):
        size = min(_BLOCK, planes.shape[1] - first)
        _count(ballots, first, size, counted)
        if used:
            _sum(planes, used, first, size, counted, needed, carry)
        for k in range(needed):
            plane, own = planes[k, first : first + size], counted[k, :size]
            for i in range(size):
                plane[i] = own[i]


@_compile
def add_counters(planes, used, addend, needed):  # type: ignore
    """Add bit-sliced counters to bit-sliced counters: `used` planes before, `needed` after."""
    for first in range(0, planes.shape[1], _BLOCK):
        size = min(_BLOCK, planes.shape[1] - first)
        carry = np.zeros(_BLOCK, np.uint64)
        for k in range(needed):
            plane = planes[k, first : first + size]
            for i in range(size):
                mine = plane[i] if k < used else np.uint64(0)
                other = addend[k, first + i] if k < addend.shape[0] else np.uint64(0)
                both = mine ^ other
                plane[i] = both ^ carry[i]
                carry[i] = (mine & other) | (both & carry[i])


@intrinsic
def _compare8(_typing: Any, planes: Any, stride: Any, size: Any, number: Any, above: Any, equal: Any) -> Any:
    """Compare 8 words of `size` planes with a number: the masks of counts above and equal, stored."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        planes, stride, size, number, above_address, equal_address = args
        above = cgutils.alloca_once_value(builder, ir.Constant(_I64X8, [0] * 8))
        equal = cgutils.alloca_once_value(builder, ir.Constant(_I64X8, [-1] * 8))
        undefined, first = ir.Constant(_I64X8, ir.Undefined), ir.Constant(_I32, 0)
        with cgutils.for_range(builder, size) as loop:
            k = builder.sub(builder.sub(size, loop.index), ir.Constant(_I64, 1))
            bit = builder.sext(builder.trunc(builder.lshr(number, k), _I1), _I64)
            bits = builder.insert_element(undefined, bit, first)
            bits = builder.shuffle_vector(bits, bits, ir.Constant(ir.VectorType(_I32, 8), [0] * 8))
            plane = _load(builder, builder.add(planes, builder.mul(stride, k)), _I64X8)
            candidate = builder.load(equal)
            more = builder.and_(builder.and_(candidate, plane), builder.not_(bits))
            builder.store(builder.or_(builder.load(above), more), above)
            builder.store(builder.and_(candidate, builder.not_(builder.xor(plane, bits))), equal)
        _store(builder, builder.load(above), above_address)
        _store(builder, builder.load(equal), equal_address)
        return None

    return types.void(*[types.int64] * 6), generate


@_compile
def majority(planes, used, needed, ballots, numels, starts, voters, tie_rule, key, offset, words, ties):  # type: ignore
    """Bit 1 where more than half of a parameter's voters are negative; ties by rule: 0 plus, 1 coin, 2 abstain.

    The votes are the `used` planes and up to BATCH further ballots, which are counted here, block by block: so the
    counters of what came last never leave the cache. The first word tosses the coin number `offset`.
    """
    equal, carry = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    counted = np.empty((max(5, needed), _BLOCK), np.uint64)
    for p in range(len(numels)):
        half = voters[p] >> 1
        can_tie = voters[p] & 1 == 0 and voters[p] > 0
        stop = starts[p] + ((numels[p] + 63) >> 6)
        for first in range(starts[p], stop, _BLOCK):
            size = min(_BLOCK, stop - first)
            above = words[first : first + size]
            _count(ballots, first, size, counted)
            if used:
                _sum(planes, used, first, size, counted, needed, carry)
            for i in range(0, size & ~7, 8):
                address = counted.ctypes.data + 8 * i
                _compare8(address, 8 * _BLOCK, needed, half, above.ctypes.data + 8 * i, equal.ctypes.data + 8 * i)
            for i in range(size & ~7, size):
                above[i], equal[i] = np.uint64(0), ~np.uint64(0)
                for k in range(needed - 1, -1, -1):
                    plane = counted[k, i]
                    if (half >> k) & 1:
                        equal[i] &= plane
                    else:
                        above[i] |= equal[i] & plane
                        equal[i] &= ~plane
            if can_tie and tie_rule == 1:
                for i in range(size):
                    if equal[i]:
                        above[i] |= equal[i] & coin(key, offset + first + i)
            if tie_rule == 2:
                for i in range(size):
                    ties[first + i] = equal[i] if can_tie else np.uint64(0)


@_compile
def disagreement(numels, starts, counted, ballot, verdict):  # type: ignore
    """The number of coordinates of the counted parameters in which a ballot and a verdict differ."""
    differ = np.uint64(0)
    for p in range(len(numels)):
        if counted[p]:
            stop = starts[p] + ((numels[p] + 63) >> 6)
            # slices: an index that starts at 0 can't be negative, and the loop becomes plain vector loads, not gathers
            mine, decided = ballot[starts[p] : stop], verdict[starts[p] : stop]
            for i in range(len(mine)):
                differ += _popcount(mine[i] ^ decided[i])
    return differ


LANES = 8
"""Partial sums of a norm: lane j adds up the coordinates j, j + 8, j + 16, … of a parameter."""


@_compile
def power_sums(vectors, numels, squared, sums):  # type: ignore
    """Σ|v| or Σv² of each parameter in float64, by LANES partial sums that are added from lane 0 on; 0 where absent."""
    lanes = np.empty(LANES, np.float64)
    for p in range(len(numels)):
        lanes[:] = 0.0
        sums[p] = 0.0
        vector = vectors[p]
        if vector == 0:
            continue
        full = numels[p] & ~(LANES - 1)
        for e in range(0, full, LANES):
            for j in range(LANES):
                value = np.float64(_load1(vector + 4 * (e + j)))
                lanes[j] += value * value if squared else abs(value)
        for e in range(full, numels[p]):
            value = np.float64(_load1(vector + 4 * e))
            lanes[e - full] += value * value if squared else abs(value)
        for j in range(LANES):
            sums[p] += lanes[j]


_HALF = np.float32(1 << 23)


@_compile
def _lot(draw, value, norm):  # type: ignore
    """Negative with probability ½ − ½·value/norm, for 24 random bits; all but the quotient is exact in float32."""
    return (np.float32(np.int32(draw)) - _HALF) + np.rint(_HALF * (value / norm))


@_compile
def stochastic_signs(vectors, numels, starts, norm, key, offset, words):  # type: ignore
    """The ballot of stochastic signs; coordinate c, padding included, takes half of the coin number (c >> 1) + 32·offset."""
    lots, mask = np.zeros(64, np.float32), np.uint64((1 << 24) - 1)
    for p in range(len(numels)):
        vector = vectors[p]
        for i in range((numels[p] + 63) >> 6):
            if vector == 0:
                words[starts[p] + i] = np.uint64(0)
                continue
            size = min(64, numels[p] - 64 * i)
            if size < 64:
                lots[:] = np.float32(0)
            first, address = 32 * (offset + starts[p] + i), vector + 256 * i
            for j in range(size >> 1):
                chances = coin(key, first + j)
                low, high = (chances >> np.uint64(8)) & mask, chances >> np.uint64(40)
                lots[2 * j] = _lot(low, _load1(address + 8 * j), norm)
                lots[2 * j + 1] = _lot(high, _load1(address + 8 * j + 4), norm)
            if size & 1:
                low = (coin(key, first + (size >> 1)) >> np.uint64(8)) & mask
                lots[size - 1] = _lot(low, _load1(address + 4 * (size - 1)), norm)
            words[starts[p] + i], _, _ = _signs64(lots.ctypes.data)


@_compile
def sign_sums(planes, numels, starts, voters, sums):  # type: ignore
    """voters − 2·count as float32, the sum of the voters' signs, for the counts that stand in bit-sliced planes."""
    for p in range(len(numels)):
        for i in range(starts[p], starts[p] + ((numels[p] + 63) >> 6)):
            block = sums[64 * i : 64 * i + 64]
            block[:] = np.float32(voters[p])
            for k in range(planes.shape[0]):
                word, weight = planes[k, i], np.float32(2 << k)
                for j in range(64):
                    block[j] -= weight if (word >> np.uint64(j)) & np.uint64(1) else np.float32(0)


@_compile
def residuals(moved, numels, starts, scales, present, words, errors):  # type: ignore
    """e ← p − scale·sign of the parameters that are present; `moved` holds p, both are float32[64·len(words)]."""
    for p in range(len(numels)):
        if not present[p]:
            continue
        for i in range(starts[p], starts[p] + ((numels[p] + 63) >> 6)):
            word, size = words[i], min(64, numels[p] - 64 * (i - starts[p]))
            for j in range(size):
                at, negative = 64 * i + j, (word >> np.uint64(j)) & np.uint64(1)
                errors[at] = moved[at] - (-scales[p] if negative else scales[p])


@_compile
def scaled_sign_means(ballots, scales, present, numels, starts, voters, means):  # type: ignore
    """The voters' mean of scale·sign: added in float64 from rank 0 on, divided, and rounded to float32 once."""
    total, first = np.empty(64, np.float64), 0
    for p in range(len(numels)):
        for i in range((numels[p] + 63) >> 6):
            total[:] = 0.0
            for n in range(len(ballots)):
                if present[n, p]:
                    word, scale = ballots[n, starts[p] + i], np.float64(scales[n, p])
                    for j in range(64):
                        total[j] += -scale if (word >> np.uint64(j)) & np.uint64(1) else scale
            for j in range(min(64, numels[p] - 64 * i)):
                means[first + 64 * i + j] = np.float32(total[j] / voters[p]) if voters[p] else np.float32(0)
        first += numels[p]
