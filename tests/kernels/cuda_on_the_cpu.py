"""The CUDA kernels on the CPU against reference.py, bit for bit; test_cuda.py runs this, in a Python of its own.

Tensors of the CPU stand for those of a device. With NUMBA_ENABLE_CUDASIM=1 Numba's simulator runs the kernels' text; else,
where numba-cuda has its compiler, ptx.py runs what they compile to. All loads and stores are watched: what belongs to no
tensor raises. MPISIGN_TEST_PTX names a compute capability.
"""

import gc
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_kernels import SPECIALS, ones, tensors, values, words_of

from mpisign import kernels, reference
from mpisign.kernels import Layout, cuda
from mpisign.kernels.cuda import launching, memory, signs

if not memory.SIMULATED:
    import compiling_cuda
    import ptx

    ARCHITECTURE = tuple(map(int, os.environ.get("MPISIGN_TEST_PTX", "9.0").split(".")))
    PROGRAMS: dict[object, ptx.Program] = {}

    def may_touch(address: int, nbytes: int) -> None:
        """Raise where memory belongs to no tensor."""
        if not any(start <= address and address + nbytes <= stop for start, stop in memory.watched):
            raise IndexError(f"{nbytes} bytes at {address:#x} belong to no tensor")

    def interpret(kernel: object, blocks: int, _device: torch.device, *arguments: int) -> None:
        """Run a kernel's PTX in place of a launch."""
        if kernel not in PROGRAMS:
            PROGRAMS[kernel] = ptx.Program(compiling_cuda.one_kernel(kernel, ARCHITECTURE), may_touch)
        PROGRAMS[kernel].run(blocks, memory.THREADS, [int(argument) for argument in arguments])


sys.setswitchinterval(1e-4)  # the simulator polls its threads
gc.freeze()  # what is there by now is no tensor of a test, and need not be looked through

FEW = [0, 1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 300]
FEW += [] if memory.SIMULATED else [64 * signs.TILE + 5]  # a second tile
SIZES = pytest.mark.parametrize(
    "sizes",
    [FEW, *(pytest.param(list(range(first, first + 43)), marks=pytest.mark.slow) for first in range(0, 301, 43))],
    ids=lambda sizes: f"{sizes[0]}-{sizes[-1]}, {len(sizes)}",
)


@pytest.fixture(autouse=True)
def memory_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels touch what belongs to a tensor, and nothing else."""
    plain: Callable[..., None] = launching.launch if memory.SIMULATED else interpret

    def watched(*arguments: object) -> None:
        alive = (thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor))
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in alive}
        monkeypatch.setattr(
            memory, "watched", [(start, start + size) for start, size in storages.items() if size], False
        )
        plain(*arguments)

    for module in (cuda, cuda.tally):
        monkeypatch.setattr(module, "launch", watched)


def on(layout: Layout) -> torch.Tensor:
    return torch.full((layout.message,), 2**64 - 1, dtype=torch.uint64)


def coordinates(layout: Layout, arrays: list[np.ndarray]) -> torch.Tensor:
    """Each array at the start of its words, in float32[64 * layout.words]; padding is 7."""
    out = torch.full((64 * layout.words,), 7.0)
    for start, array in zip(layout.starts.tolist(), arrays, strict=True):
        out[64 * start : 64 * start + len(array)] = torch.from_numpy(array)
    return out


def part(layout: Layout, vector: torch.Tensor, p: int) -> np.ndarray:
    start = 64 * int(layout.starts[p])
    return vector[start : start + int(layout.numels[p])].numpy()


def header_of(layout: Layout, ballot: torch.Tensor) -> list[bool]:
    return layout.read_presence(ballot.numpy()[: layout.header]).tolist()


def plain_ballot(layout: Layout, bits: list[np.ndarray], present: np.ndarray) -> torch.Tensor:
    """A ballot of the CPU's kernels; where it abstains, all bits are set."""
    ballot, count = on(layout), len(bits)
    signs = [np.where(b, -1, 1).astype(np.float32) for b in bits]
    kernels.sign_ballot(layout, tensors(signs), None, ones(count), ones(count), "plus", 0, ballot)
    layout.write_presence(present, ballot.numpy()[: layout.header])
    for p in np.flatnonzero(~present):
        words_of(layout, ballot.numpy()[layout.header :], p)[:] = 2**64 - 1
    return ballot


@SIZES
@pytest.mark.parametrize("zero", ["plus", "coin", "minus"])
def test_momentum_and_signs_agree_with_the_reference(sizes: list[int], zero: str) -> None:
    layout, count = Layout(sizes, offset=3), len(sizes)
    gradients, old = [values(n) for n in sizes], [values(n, 1) for n in sizes]
    betas, gammas = np.linspace(0, 0.99, count).astype(np.float32), np.linspace(1, 0.01, count).astype(np.float32)
    momentum, ballot = coordinates(layout, old), on(layout)
    finite = cuda.sign_ballot(
        layout, tensors(gradients), momentum, betas, gammas, zero, 7, ballot, kernels.NOTHING_KEPT
    )
    assert bool(finite)
    assert all(header_of(layout, ballot))
    for p, n in enumerate(sizes):
        expected = reference.momentum(old[p], gradients[p], betas[p], gammas[p])
        bits = reference.negatives(expected, "coin" if zero == "coin" else "plus", 7, 3 + int(layout.starts[p]))
        if zero == "minus":
            bits = bits | (expected == 0)
        assert part(layout, momentum, p).tobytes() == expected.tobytes()
        assert words_of(layout, ballot.numpy()[layout.header :], p).tobytes() == reference.pack(bits).tobytes()
        assert (momentum[64 * int(layout.starts[p]) + n : 64 * (int(layout.starts[p]) + (n + 63) // 64)] == 7).all()


@SIZES
def test_signs_without_momentum_and_of_tensors_that_are_not_aligned_agree(sizes: list[int]) -> None:
    layout, count = Layout(sizes), len(sizes)
    arrays = [values(n) for n in sizes]
    gradients = [torch.cat([torch.ones(1 + p % 4), t])[1 + p % 4 :] for p, t in enumerate(tensors(arrays))]
    ballot = on(layout)
    cuda.sign_ballot(layout, gradients, None, ones(count), ones(count), "coin", 11, ballot, kernels.NOTHING_KEPT)
    for p, array in enumerate(arrays):
        bits = reference.pack(reference.negatives(array, "coin", 11, int(layout.starts[p])))
        assert words_of(layout, ballot.numpy()[layout.header :], p).tobytes() == bits.tobytes()


def test_what_is_kept_may_be_another_mixture_than_what_is_signed() -> None:
    sizes = [130, 3, 64]
    layout, gradients, old = Layout(sizes), [values(n) for n in sizes], [values(n, 1) for n in sizes]
    kept = np.array([[0.99] * 3, [0.01] * 3], np.float32)
    momentum, ballot = coordinates(layout, old), on(layout)
    cuda.sign_ballot(layout, tensors(gradients), momentum, ones(3, 0.9), ones(3, 0.1), "plus", 0, ballot, kept)
    for p in range(3):
        signed = reference.pack(reference.negatives(reference.momentum(old[p], gradients[p], 0.9, 0.1)))
        assert words_of(layout, ballot.numpy()[layout.header :], p).tobytes() == signed.tobytes()
        expected = reference.momentum(old[p], gradients[p], 0.99, 0.01)
        assert part(layout, momentum, p).tobytes() == expected.tobytes()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_worker_abstains_where_its_gradient_is_not_finite_and_keeps_its_momentum(bad: float) -> None:
    sizes = [3, 200, 64, 0, 10] + [1] * 61  # the header's second word too
    layout, gradients, old = Layout(sizes), [values(n) for n in sizes], [values(n, 1) for n in sizes]
    gradients[1][[5, 199]], gradients[64][0] = bad, bad
    given = [None if p == 4 else gradient for p, gradient in enumerate(tensors(gradients))]
    momentum, ballot, own = coordinates(layout, old), on(layout), on(layout)
    finite = cuda.sign_ballot(
        layout, given, momentum, ones(66, 0.9), ones(66, 0.1), "coin", 5, ballot, kernels.NOTHING_KEPT
    )
    assert not bool(finite)
    assert header_of(layout, ballot) == [p not in (1, 4, 64) for p in range(66)]
    mirror = coordinates(layout, old)
    assert not kernels.sign_ballot(layout, given, mirror, ones(66, 0.9), ones(66, 0.1), "coin", 5, own)
    assert torch.equal(mirror, momentum)
    assert torch.equal(own.view(torch.int64), ballot.view(torch.int64))
    expected = reference.momentum(old[1], gradients[1], 0.9, 0.1)
    assert part(layout, momentum, 1).tobytes() == expected.tobytes()


@SIZES
@pytest.mark.parametrize("tie", ["plus", "abstain"])
def test_descent_agrees_with_the_reference_wherever_the_verdict_lies(sizes: list[int], tie: str) -> None:
    random, layout, count = np.random.default_rng(3), Layout(sizes), len(sizes)
    arrays = [values(n) for n in sizes]
    negative, tied = ([random.random(n) < share for n in sizes] for share in (0.5, 0.3))
    on_device, on_host = cuda.Verdict(layout, tie, "cpu"), kernels.Verdict(layout, tie)
    for p in range(count):
        words_of(layout, on_host.words, p)[:] = reference.pack(negative[p])
        if tie == "abstain":
            words_of(layout, on_host.ties, p)[:] = reference.pack(tied[p])
    layout.write_presence(np.arange(count) % 5 != 3, on_host.header)
    on_device.message.copy_(on_host.message)
    steps, decays = np.geomspace(1e-9, 1, count).astype(np.float32), np.linspace(1, 0.9, count).astype(np.float32)
    for verdict in (on_device, on_host):
        x = tensors(arrays)
        given = [None if p == 1 else tensor for p, tensor in enumerate(x)]
        cuda.descend(given, verdict, steps, decays)
        for p in range(count):
            ties = tied[p] if tie == "abstain" else None
            moved = reference.descend(arrays[p], negative[p], steps[p], decays[p], ties)
            expected = arrays[p] if p == 1 or p % 5 == 3 else moved
            assert x[p].numpy().tobytes() == expected.tobytes()
            signs = np.where(negative[p], -1, 1) * (1 - tied[p] if tie == "abstain" else 1)
            if p % 4 == 0:
                assert cuda.unpack(verdict, p).tolist() == signs.tolist()


@pytest.mark.parametrize("tie", ["coin", "plus", "abstain"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, pytest.param(33, marks=pytest.mark.slow)])
def test_each_parameter_is_decided_by_those_that_have_a_gradient(workers: int, tie: str) -> None:
    random = np.random.default_rng(workers)
    sizes = [1001, 0, 1, 63, 64, 65, 300] + [2] * (60 if workers == 3 else 0)  # a header of two words, once
    layout = Layout(sizes, offset=9)
    present = random.random((workers, len(sizes))) < 0.7
    present[workers // 2] = False
    bits = [[random.random(n) < 0.5 for n in sizes] for _ in range(workers)]
    ballots = [plain_ballot(layout, b, here) for b, here in zip(bits, present, strict=True)]
    tally, verdict = cuda.Tally(layout, workers, "cpu"), cuda.Verdict(layout, tie, "cpu")
    verdict.message.view(torch.int64).fill_(-1)
    tally.add(ballots[: workers // 3])
    tally.add(ballots[workers // 3 :])
    tally.decide(5, verdict)
    counts = [sum(b[p] & here[p] for b, here in zip(bits, present, strict=True)) for p in range(len(sizes))]
    planes = tally.counters().numpy()
    for p, n in enumerate(sizes):
        counted = sum(
            reference.unpack(words_of(layout, plane, p), n).astype(int) << k for k, plane in enumerate(planes)
        )
        assert np.all(counted == counts[p])
        votes = np.array([b[p] for b in bits])[present[:, p]]
        negative, tied = reference.majority(votes, tie, 5, 9 + int(layout.starts[p]))
        assert words_of(layout, verdict.words.numpy(), p).tobytes() == reference.pack(negative).tobytes()
        if tie == "abstain":
            assert words_of(layout, verdict.ties.numpy(), p).tobytes() == reference.pack(tied).tobytes()
    assert tally.voters.tolist() == present.sum(axis=0).tolist()
    assert verdict.decided.tolist() == present.any(axis=0).tolist()
    assert verdict.voters == present.any(axis=1).sum()
    on_host = kernels.Verdict(layout, tie)
    host = kernels.Tally(layout, workers)
    host.add(ballots)
    host.decide(5, on_host)
    assert torch.equal(on_host.message.view(torch.int64), verdict.message.view(torch.int64))


def test_tallies_add_and_are_used_again() -> None:
    layout, random = Layout([100, 700]), np.random.default_rng(0)
    bits = [[random.random(n) < 0.5 for n in (100, 700)] for _ in range(9)]
    ballots = [plain_ballot(layout, b, np.array([True, True])) for b in bits]
    whole, verdict = cuda.Tally(layout, 9, "cpu"), cuda.Verdict(layout, "plus", "cpu")
    other = cuda.Tally(layout, 9, "cpu")
    for turn in (0, 1):
        whole.clear()
        whole.add(ballots[turn : 4 + turn])
        other.clear()
        other.add(ballots[4 + turn : 8])
        whole.merge(other.counters()[: other.added.bit_length()], other.voters, other.added, other.count)
        assert whole.added == 8 - turn
        assert whole.voters.tolist() == [8 - turn] * 2
        whole.decide(0, verdict)
        assert verdict.voters == 8 - turn
        for p in (0, 1):
            negative, _ = reference.majority(np.array([b[p] for b in bits[turn:8]]))
            assert words_of(layout, verdict.words.numpy(), p).tobytes() == reference.pack(negative).tobytes()
    with pytest.raises(ValueError, match="11 ballots for a tally of 9"):
        whole.add(ballots[:4])


def test_a_tally_without_ballots_and_one_without_parameters_decide_nothing() -> None:
    for layout in (Layout([70, 3]), Layout([])):
        tally, verdict = cuda.Tally(layout, 3, "cpu"), cuda.Verdict(layout, "coin", "cpu")
        verdict.message.view(torch.int64).fill_(-1)
        tally.decide(1, verdict)
        assert not verdict.message.view(torch.int64).any()


def test_bits_beyond_the_last_parameter_are_nobodys_vote() -> None:
    layout = Layout([64])
    liar = torch.tensor([2**64 - 2, 2**64 - 1], dtype=torch.uint64)  # present in everything but the one parameter
    tally, verdict = cuda.Tally(layout, 2, "cpu"), cuda.Verdict(layout, "plus", "cpu")
    tally.add([liar])
    tally.decide(0, verdict)
    assert verdict.message.tolist() == [0, 0, 0]


def test_disagreement_counts_the_coordinates_that_were_voted_on() -> None:
    random, sizes = np.random.default_rng(5), [100, 50, 0, 1001, 64]
    layout = Layout(sizes)
    mine, decided = ([random.random(n) < 0.5 for n in sizes] for _ in range(2))
    ballot = plain_ballot(layout, mine, np.array([True, False, True, True, True]))
    on_host = kernels.Verdict(layout, "plus")
    for p in range(5):
        words_of(layout, on_host.words, p)[:] = reference.pack(decided[p])
    differ, voted = cuda.disagreement(ballot, on_host)
    assert int(differ) == sum((mine[p] ^ decided[p]).sum() for p in (0, 2, 3, 4))
    assert int(voted) == 100 + 1001 + 64
    assert kernels.disagreement(ballot, on_host) == (int(differ), int(voted))


@SIZES
def test_norms_have_the_bits_of_the_reference(sizes: list[int]) -> None:
    layout, arrays = Layout(sizes), [np.clip(values(n), -9, 9) for n in sizes]
    given = [None if p == 7 else tensor for p, tensor in enumerate(tensors(arrays))]
    norm = cuda.l2_norm(layout, given)
    assert norm.numpy() == reference.l2_norm([array for p, array in enumerate(arrays) if p != 7])
    wanted = [0.0 if p == 7 else reference.power_sum(array, 1) for p, array in enumerate(arrays)]
    assert cuda.l1_norms(layout, given).tolist() == wanted


@SIZES
def test_stochastic_signs_agree_with_the_reference(sizes: list[int]) -> None:
    layout, arrays = Layout(sizes, offset=2), [np.clip(values(n), -9, 9) for n in sizes]
    for norm in (reference.l2_norm(arrays), np.float32(9)):
        ballot = on(layout)
        given = [None if p == 7 else tensor for p, tensor in enumerate(tensors(arrays))]
        assert bool(cuda.stochastic_sign_ballot(layout, given, torch.tensor(norm), 5, ballot))
        assert header_of(layout, ballot) == [p != 7 for p in range(len(sizes))]
        for p, array in enumerate(arrays):
            bits = reference.stochastic_negatives(array, norm, 5, 2 + int(layout.starts[p])) & (p != 7)
            assert words_of(layout, ballot.numpy()[layout.header :], p).tobytes() == reference.pack(bits).tobytes()


@pytest.mark.parametrize("value", SPECIALS)
def test_a_single_coordinate_is_its_own_sign_whatever_its_size(value: float) -> None:
    layout, vector = Layout([1]), tensors([np.array([value])])
    norm = cuda.l2_norm(layout, vector)
    assert float(norm) == abs(value)
    for key in range(3):
        ballot = on(layout)
        assert bool(cuda.stochastic_sign_ballot(layout, vector, norm, key, ballot)) == (value != 0)
        assert ballot.tolist() == ([0, 0] if value == 0 else [1, int(value < 0)])


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -1.0])
def test_a_norm_that_is_zero_or_not_finite_abstains(bad: float) -> None:
    layout, ballot = Layout([65, 10]), on(Layout([65, 10]))
    assert not bool(cuda.stochastic_sign_ballot(layout, tensors([values(65), values(10)]), bad, 0, ballot))
    assert not ballot.view(torch.int64).any()


def test_norms_beyond_float32_and_of_what_is_not_finite_are_those_of_the_cpu() -> None:
    layout = Layout([65])
    for last in (np.inf, np.nan, 3e38):
        vector = tensors([np.append(np.full(64, 3e38, np.float32), np.float32(last))])
        assert np.array_equal(cuda.l2_norm(layout, vector).numpy(), kernels.l2_norm(layout, vector), equal_nan=True)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_sums_and_means_of_signs_agree_with_the_reference(workers: int) -> None:
    random, sizes = np.random.default_rng(workers), FEW
    layout = Layout(sizes)
    bits = [[random.random(n) < 0.5 for n in sizes] for _ in range(workers)]
    present = random.random((workers, len(sizes))) < 0.8
    ballots = [plain_ballot(layout, b, here) for b, here in zip(bits, present, strict=True)]
    tally, sums = cuda.Tally(layout, workers, "cpu"), torch.empty(64 * layout.words)
    tally.add(ballots)
    planes = torch.empty((len(tally.planes), layout.words + 5), dtype=torch.uint64)
    planes[:, 5:] = tally.counters()
    cuda.sign_sums(layout, planes[:, 5:], tally.voters, sums)
    scales = random.lognormal(size=present.shape, sigma=5).astype(np.float32)
    means = torch.full((layout.coordinates,), float("nan"))
    wider = torch.cat([torch.stack(ballots), torch.zeros(workers, 3, dtype=torch.uint64)], dim=1)
    seen = cuda.scaled_sign_means(layout, wider[:, : layout.message], scales, means)
    assert seen.tolist() == present.tolist()
    for p, mean in enumerate(torch.split(means, sizes)):
        votes, voting = np.array([b[p] for b in bits])[present[:, p]], scales[present[:, p], p]
        assert part(layout, sums, p).tobytes() == reference.sign_sum(votes).tobytes()
        expected = reference.scaled_sign_mean(votes, voting) if len(votes) else np.zeros(sizes[p], np.float32)
        assert mean.numpy().tobytes() == expected.tobytes()


def test_residuals_are_what_the_scaled_signs_leave_and_stay_where_absent() -> None:
    random, layout = np.random.default_rng(0), Layout([65, 0, 130])
    moved, errors = (torch.from_numpy(random.standard_normal(64 * layout.words).astype(np.float32)) for _ in range(2))
    before, scales = errors.clone(), np.array([0.3, 0.0, 0.7], np.float32)
    bits = [random.random(n) < 0.5 for n in (65, 0, 130)]
    cuda.residuals(layout, moved, scales, plain_ballot(layout, bits, np.array([True, True, False])), errors)
    expected = moved.numpy()[:65] - scales[0] * np.where(bits[0], -1, 1).astype(np.float32)
    assert errors[:65].numpy().tobytes() == expected.tobytes()
    assert torch.equal(errors[65:], before[65:])


def test_warming_up_starts_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    started, watched = set(), cuda.launch

    def noted(kernel: object, *arguments: object) -> None:
        started.add(kernel)
        watched(kernel, *arguments)

    for module in (cuda, cuda.tally):
        monkeypatch.setattr(module, "launch", noted)
    cuda.warm_up("cpu")
    assert started == set(cuda.KERNELS)


def test_tensors_of_two_devices_are_refused() -> None:
    elsewhere: Any = SimpleNamespace(get_device=lambda: 1, device="cuda:1")
    layout, gradient = Layout([65]), torch.ones(65)
    for gradients, momentum in (([elsewhere], None), ([gradient], elsewhere)):
        with pytest.raises(ValueError, match="a kernel on cpu was given a tensor on cuda:1: move all"):
            cuda.sign_ballot(layout, gradients, momentum, ones(1), ones(1), "plus", 0, on(layout), kernels.NOTHING_KEPT)
    with pytest.raises(ValueError, match="tensor on cuda:1"):
        cuda.Tally(layout, 1, "cpu").add([elsewhere])


def test_a_touch_beyond_all_tensors_is_noticed() -> None:
    gradient, wrong = torch.ones(65), Layout([70])  # a layout that says that the gradient is longer than it is
    ballot = on(wrong)
    with pytest.raises(IndexError, match="belong to no tensor"):
        cuda.sign_ballot(wrong, [gradient], None, ones(1), ones(1), "plus", 0, ballot, kernels.NOTHING_KEPT)
