"""Kernels on one thread: each against NumPy, and against a plain loop that moves the same bytes."""

from collections.abc import Callable

import harness  # before the others: it limits their threads
import numpy as np
import torch
from numba import njit

from mpisign import kernels

VOTERS = 16
_BLOCK = 1 << 16  # bytes of a ballot that the NumPy votes treat at once: found to be the fastest

_plain = njit(cache=True, fastmath=True)


@_plain
def read(words):
    """Read uint32[n]: an `or` over all, which vectorises."""
    seen = np.uint32(0)
    for i in range(len(words)):
        seen |= words[i]
    return seen


@_plain
def triad(a, b, c):
    """a ← b + c·a: two floats read and one written for each coordinate, as by momentum."""
    for i in range(len(a)):
        a[i] = b[i] + c * a[i]


@_plain
def scale(a, c):
    """a ← c·a: one float read and one written for each coordinate, as by the descent."""
    for i in range(len(a)):
        a[i] = c * a[i]


def numpy_vote(ballots):
    """Majority of ballots uint8[n], a tie being +: unpacked, added and compared by blocks that stay in the cache."""
    verdict = np.empty_like(ballots[0])
    for first in range(0, len(verdict), _BLOCK):
        block = slice(first, first + _BLOCK)
        count = np.unpackbits(ballots[0][block], bitorder="little")
        for ballot in ballots[1:]:
            count += np.unpackbits(ballot[block], bitorder="little")
        verdict[block] = np.packbits(count > len(ballots) // 2, bitorder="little")
    return verdict


class Model:
    """One parameter of `numel` coordinates, with gradient, momentum, ballot and verdict, in torch's memory."""

    def __init__(self, numel: int) -> None:
        self.numel = numel
        self.layout = kernels.Layout([numel])
        random = np.random.default_rng(0)
        self.gradient = torch.from_numpy(random.standard_normal(numel, np.float32)).clone()
        self.parameter = self.gradient.clone()
        self.momentum = torch.zeros(64 * self.layout.words)
        self.ballot = torch.zeros(self.layout.message, dtype=torch.uint64)
        self.verdict = kernels.Verdict(self.layout, "coin")
        for tensor in (self.gradient, self.parameter, self.momentum):
            assert tensor.data_ptr() % 64 == 0
        self.sign(None, "plus")()
        tally = kernels.Tally(self.layout, 1)
        tally.add([self.ballot])
        tally.decide(0, self.verdict)

    def sign(self, momentum: torch.Tensor | None, zero: kernels.Zero) -> Callable[[], bool]:
        """The kernel as `Signum.step` calls it."""
        beta, gamma = np.array([0.9], np.float32), np.array([0.1], np.float32)
        return lambda: kernels.sign_ballot(self.layout, [self.gradient], momentum, beta, gamma, zero, 1, self.ballot)


def pack(record: harness.Record, model: Model, repeats: int) -> None:
    """Signs to bits: 4 bytes read a coordinate."""
    values, nbytes = model.gradient.numpy(), 4 * model.numel
    packed = np.packbits(values < 0, bitorder="little")  # signbit would give −0.0 another bit
    assert np.array_equal(model.ballot.numpy()[model.layout.header :].view(np.uint8)[: len(packed)], packed)
    packbits, plain = "numpy.packbits(numpy.signbit(v))", "plain read"
    comparison = harness.Comparison("pack", packbits)
    comparison.add(packbits, lambda: np.packbits(np.signbit(values), bitorder="little"), nbytes)
    comparison.add(plain, lambda: read(values.view(np.uint32)), nbytes)
    for zero in ("plus", "coin"):
        comparison.add(f"pack, zero={zero}", model.sign(None, zero), nbytes)
    comparison.measure(repeats)
    record.compare(comparison)
    for zero in ("plus", "coin"):
        name = f"pack, zero={zero}"
        record.check(f"{name}: times as fast as {packbits}", 1 / comparison.ratio(name), "≥", 1.8)
        record.check(f"{name}: share of the bandwidth of a {plain}", 1 / comparison.ratio(name, plain), "≥", 0.85)


def momentum(record: harness.Record, model: Model, repeats: int) -> None:
    """v ← βv + (1−β)g and its signs: 12 bytes a coordinate."""
    nbytes, plain = 12 * model.numel, "plain triad a = b + c*a"
    velocity, gradient = model.momentum.numpy()[: model.numel], model.gradient.numpy()
    comparison = harness.Comparison("momentum and pack", plain)
    comparison.add(plain, lambda: triad(velocity, gradient, np.float32(0.9)), nbytes)
    for zero in ("plus", "coin"):
        comparison.add(f"momentum and pack, zero={zero}", model.sign(model.momentum, zero), nbytes)
    comparison.measure(repeats)
    record.compare(comparison)
    for zero in ("plus", "coin"):
        name = f"momentum and pack, zero={zero}"
        record.check(f"{name}: share of the bandwidth of a {plain}", 1 / comparison.ratio(name), "≥", 0.85)


def descent(record: harness.Record, model: Model, repeats: int) -> None:
    """x ← (1−ηλ)x − η·verdict: 8 bytes a coordinate."""
    nbytes, plain, copy, name = 8 * model.numel, "plain scale a = c*a", "numpy.copyto", "descent"
    parameter, other = model.parameter.numpy(), torch.zeros(model.numel).numpy()
    step, decay = np.array([1e-3], np.float32), np.array([1 - 1e-7], np.float32)
    comparison = harness.Comparison("descent", plain)
    comparison.add(plain, lambda: scale(parameter, np.float32(1 - 1e-7)), nbytes)
    comparison.add(copy, lambda: np.copyto(other, parameter), nbytes)
    comparison.add(name, lambda: kernels.descend([model.parameter], model.verdict, step, decay), nbytes)
    comparison.measure(repeats)
    record.compare(comparison)
    for baseline in (plain, copy):
        record.check(f"{name}: share of the bandwidth of {baseline}", 1 / comparison.ratio(name, baseline), "≥", 0.85)


def vote(record: harness.Record, model: Model, repeats: int) -> None:
    """Sixteen ballots to one verdict; the server's ballots come one by one or several at a time."""
    layout, random = model.layout, np.random.default_rng(1)
    ballots = [torch.from_numpy(random.integers(0, 1 << 64, layout.message, np.uint64)).clone() for _ in range(VOTERS)]
    for ballot in ballots:
        layout.write_presence(np.ones(1, np.bool_), ballot.numpy()[: layout.header])
        ballot.numpy()[-1] &= np.uint64((1 << ((model.numel - 1) % 64 + 1)) - 1)  # padding is 0
    signs = [ballot.numpy()[layout.header :].view(np.uint8) for ballot in ballots]
    tally = kernels.Tally(layout, VOTERS)
    verdicts = {tie: kernels.Verdict(layout, tie) for tie in ("plus", "coin", "abstain")}

    def ours(tie: str, at_once: int) -> None:
        tally.clear()
        for first in range(0, VOTERS, at_once):
            tally.add(ballots[first : first + at_once])
        tally.decide(1, verdicts[tie])

    ours("plus", VOTERS)
    assert np.array_equal(verdicts["plus"].words, numpy_vote(signs).view(np.uint64))
    nbytes, plain = VOTERS * layout.words * 8, "plain read of the ballots"
    numpy = "NumPy: unpackbits, add, compare, packbits"
    comparison = harness.Comparison(f"vote of {VOTERS}", numpy)
    comparison.add(numpy, lambda: numpy_vote(signs), nbytes)
    comparison.add(plain, lambda: [read(sign.view(np.uint32)) for sign in signs], nbytes)
    for tie in verdicts:
        comparison.add(f"vote, tie={tie}", lambda tie=tie: ours(tie, VOTERS), nbytes)
    for at_once in (8, 1):
        comparison.add(f"vote, tie=coin, {at_once} at a time", lambda at_once=at_once: ours("coin", at_once), nbytes)
    comparison.measure(repeats)
    record.compare(comparison)
    for row in comparison.rows():
        votes = VOTERS * model.numel / row["best_seconds"]
        record.figure(f"{row['name']}: votes per second", votes)
        print(f"{row['name']}: {votes / 1e9:.1f} G votes/s")
    print()
    for tie in ("plus", "coin"):
        record.check(f"vote, tie={tie}: times as fast as NumPy", 1 / comparison.ratio(f"vote, tie={tie}"), "≥", 10)


def disagreement(record: harness.Record, model: Model, repeats: int) -> None:
    """Bits in which a ballot and a verdict differ: two words read for 64 coordinates; no target."""
    nbytes, plain = 2 * 8 * model.layout.words, "plain read of both"
    words = [model.ballot.numpy()[model.layout.header :].view(np.uint32), model.verdict.words.view(np.uint32)]
    comparison = harness.Comparison("disagreement", plain)
    comparison.add(plain, lambda: [read(block) for block in words], nbytes)
    comparison.add("disagreement", lambda: kernels.disagreement(model.ballot, model.verdict), nbytes)
    comparison.measure(repeats)
    record.compare(comparison)


def main() -> None:
    """Run all comparisons."""
    settings = harness.parser("kernels", __doc__, repeats=9, numel=25_600_000).parse_args()
    harness.one_thread()
    record, model = harness.Record("kernels", settings), Model(settings.numel)
    for part in (pack, momentum, descent, vote, disagreement):
        part(record, model, settings.repeats)
    record.close()


if __name__ == "__main__":
    main()
