"""Every kernel against reference.py, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpisign import kernels, reference
from mpisign.kernels import Layout, Tally, Verdict

SPECIALS = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38, 1.0, -1.0], np.float32)
NOT_FINITE = np.array([np.nan, -np.nan, np.inf, -np.inf], np.float32)


def values(numel: int, seed: int = 0) -> np.ndarray:
    """Floats of all sizes, zeros of both signs and denormals among them."""
    random = np.random.default_rng([numel, seed])
    out = random.standard_normal(numel).astype(np.float32)
    where = random.random(numel) < 0.3
    out[where] = random.choice(SPECIALS, where.sum())
    return out


def tensors(arrays: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(array.copy()) for array in arrays]


def ones(count: int, value: float = 1.0) -> np.ndarray:
    return np.full(count, value, np.float32)


def words_of(layout: Layout, words: np.ndarray, p: int) -> np.ndarray:
    return words[layout.starts[p] : layout.starts[p] + (layout.numels[p] + 63) // 64]


def ballot_of(layout: Layout, arrays: list[np.ndarray], zero: str = "plus", key: int = 0) -> torch.Tensor:
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    count = len(arrays)
    kernels.sign_ballot(layout, tensors(arrays), None, ones(count), ones(count), zero, key, ballot)
    return ballot


@pytest.mark.parametrize("zero", ["plus", "coin"])
@pytest.mark.parametrize("block", range(0, 1101, 100))
def test_momentum_and_signs_agree_with_the_reference_at_every_size(block: int, zero: str) -> None:
    for numel in range(block, min(block + 100, 1101)):
        gradient, velocity = values(numel), values(numel, 1)
        layout = Layout([numel])
        momentum = torch.zeros(64 * layout.words)
        momentum[:numel] = torch.from_numpy(velocity)
        ballot = torch.zeros(layout.message, dtype=torch.uint64)
        finite = kernels.sign_ballot(
            layout, tensors([gradient]), momentum, ones(1, 0.9), ones(1, 1 - 0.9), zero, 7, ballot
        )
        expected = reference.momentum(velocity, gradient, 0.9, 1 - 0.9)
        bits = reference.pack(reference.negatives(expected, zero, 7))
        assert finite
        assert momentum[:numel].numpy().tobytes() == expected.tobytes()
        assert not momentum[numel:].any()
        assert ballot.numpy()[layout.header :].tobytes() == bits.tobytes()
        assert layout.read_presence(ballot.numpy()[: layout.header]).tolist() == [True]


@pytest.mark.parametrize("zero", ["plus", "coin"])
def test_signs_without_momentum_agree_with_numpy_at_every_size(zero: str) -> None:
    for numel in range(1101):
        gradient = values(numel)
        layout = Layout([numel])
        ballot = ballot_of(layout, [gradient], zero, 11)
        bits = reference.pack(reference.negatives(gradient, zero, 11))
        assert ballot.numpy()[layout.header :].tobytes() == bits.tobytes()
        if zero == "plus":
            packed = np.packbits(gradient < 0, bitorder="little").tobytes()
            assert bits.tobytes()[: len(packed)] == packed


@pytest.mark.parametrize("numel", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("bad", NOT_FINITE)
def test_a_worker_abstains_where_its_gradient_is_not_finite_and_keeps_its_momentum(numel: int, bad: float) -> None:
    for position in {0, numel // 2, numel - 1}:
        gradient, velocity = values(numel), values(numel, 1)
        gradient[position] = bad
        layout = Layout([3, numel])
        momentum = torch.zeros(64 * layout.words)
        momentum[64 : 64 + numel] = torch.from_numpy(velocity)
        ballot = torch.zeros(layout.message, dtype=torch.uint64)
        pair = tensors([np.ones(3, np.float32), gradient])
        finite = kernels.sign_ballot(layout, pair, momentum, ones(2, 0.9), ones(2, 0.1), "plus", 0, ballot)
        assert not finite
        assert layout.read_presence(ballot.numpy()[: layout.header]).tolist() == [True, False]
        expected = reference.momentum(velocity, gradient, 0.9, 0.1)
        assert expected[position].tobytes() == velocity[position].tobytes()
        assert momentum[64 : 64 + numel].numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("tie", ["coin", "plus", "abstain"])
def test_descent_agrees_with_the_reference_at_every_size(tie: str) -> None:
    random = np.random.default_rng(3)
    for numel in range(1101):
        layout = Layout([numel])
        parameter, negative, tied = values(numel), random.random(numel) < 0.5, random.random(numel) < 0.3
        verdict = Verdict(layout, tie)
        verdict.words[:] = reference.pack(negative)
        layout.write_presence(np.array([True]), verdict.header)
        if tie == "abstain":
            verdict.ties[:] = reference.pack(tied)
        x = torch.from_numpy(parameter.copy())
        kernels.descend([x], verdict, ones(1, 1e-3), ones(1, 1 - 1e-3 * 0.1))
        expected = reference.descend(parameter, negative, 1e-3, 1 - 1e-3 * 0.1, tied if tie == "abstain" else None)
        assert x.numpy().tobytes() == expected.tobytes()
        signs = np.where(negative, -1, 1) * (1 - tied if tie == "abstain" else 1)
        assert kernels.unpack(verdict, 0).tolist() == signs.tolist()


@pytest.mark.parametrize("tie", ["coin", "plus", "abstain"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 16, 31, 32, 33, 65])
def test_the_majority_agrees_with_the_reference(workers: int, tie: str) -> None:
    random = np.random.default_rng(workers)
    for numels in ([1001], [1, 0, 63, 64, 65], [5000, 40]):
        layout = Layout(numels)
        bits = [[random.random(n) < 0.5 for n in numels] for _ in range(workers)]
        ballots = [ballot_of(layout, [np.where(b, -1, 1).astype(np.float32) for b in ballot]) for ballot in bits]
        tally, verdict = Tally(layout, workers), Verdict(layout, tie)
        split = int(random.integers(workers + 1))
        for part in (ballots[:split], ballots[split:]):
            if part:
                tally.add(part)
        tally.decide(5, verdict)
        assert verdict.voters == workers
        for p in range(len(numels)):
            negative, tied = reference.majority(np.array([b[p] for b in bits]), tie, 5, int(layout.starts[p]))
            assert words_of(layout, verdict.words, p).tobytes() == reference.pack(negative).tobytes()
            if tie == "abstain":
                assert words_of(layout, verdict.ties, p).tobytes() == reference.pack(tied).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    numels=st.lists(st.integers(0, 200), min_size=1, max_size=5),
    workers=st.integers(1, 9),
    tie=st.sampled_from(["coin", "plus", "abstain"]),
    seed=st.integers(0, 10**6),
)
def test_each_parameter_is_decided_by_those_that_have_a_gradient(
    numels: list[int], workers: int, tie: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    layout = Layout(numels)
    present = random.random((workers, len(numels))) < 0.7
    bits = [[random.random(n) < 0.5 for n in numels] for _ in range(workers)]
    tally, verdict = Tally(layout, workers), Verdict(layout, tie)
    for w in range(workers):
        gradients = [
            torch.from_numpy(np.where(b, -1, 1).astype(np.float32)) if present[w, p] else None
            for p, b in enumerate(bits[w])
        ]
        ballot = torch.full((layout.message,), 2**64 - 1, dtype=torch.uint64)
        kernels.sign_ballot(layout, gradients, None, ones(len(numels)), ones(len(numels)), "plus", 0, ballot)
        tally.add([ballot])
    tally.decide(9, verdict)
    assert verdict.voters == present.any(axis=1).sum()
    assert verdict.decided.tolist() == present.any(axis=0).tolist()
    for p, n in enumerate(numels):
        if present[:, p].any() and n:
            votes = np.array([bits[w][p] for w in range(workers) if present[w, p]])
            negative, _ = reference.majority(votes, tie, 9, int(layout.starts[p]))
            assert words_of(layout, verdict.words, p).tobytes() == reference.pack(negative).tobytes()


def test_a_parameter_that_nobody_votes_on_is_not_moved_nor_decayed() -> None:
    layout = Layout([70, 70])
    verdict = Verdict(layout, "coin")
    layout.write_presence(np.array([False, True]), verdict.header)
    first, second = torch.ones(70), torch.ones(70)
    kernels.descend([first, second], verdict, ones(2, 0.5), ones(2, 0.9))
    assert torch.equal(first, torch.ones(70))
    assert torch.equal(second, torch.full((70,), 0.9) - 0.5)


def test_liars_about_presence_are_not_counted() -> None:
    layout = Layout([64])
    liar = torch.zeros(layout.message, dtype=torch.uint64)
    liar[layout.header :].fill_(2**64 - 1)  # all negative, but the header says: absent
    tally, verdict = Tally(layout, 3), Verdict(layout, "plus")
    tally.add([liar, ballot_of(layout, [ones(64)]), ballot_of(layout, [-ones(64)])])
    tally.decide(0, verdict)
    assert verdict.voters == 2
    assert verdict.words.tolist() == [0]


def test_disagreement_counts_the_coordinates_that_were_voted_on() -> None:
    layout = Layout([100, 50])
    gradient = values(100)
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    kernels.sign_ballot(layout, [torch.from_numpy(gradient), None], None, ones(2), ones(2), "plus", 0, ballot)
    tally, verdict = Tally(layout, 1), Verdict(layout, "plus")
    tally.add([ballot_of(layout, [-gradient, ones(50)])])
    tally.decide(0, verdict)
    assert kernels.disagreement(ballot, verdict) == (int((gradient != 0).sum()), 100)


def test_coins_are_fair_and_do_not_repeat() -> None:
    words = reference.coins(kernels.stream(1, 2), 4096)
    heads = reference.unpack(words, 64 * 4096).mean()
    assert abs(heads - 0.5) < 4 * 0.5 / np.sqrt(64 * 4096)  # four standard deviations
    assert len(np.unique(words)) == 4096
    assert kernels.stream(1, 2) != kernels.stream(1, 3) != kernels.stream(2, 3)


@pytest.mark.parametrize("workers", [1, 2, 7, 31, 32, 40, 70])
def test_counters_hold_the_number_of_negative_votes_however_the_ballots_came(workers: int) -> None:
    random = np.random.default_rng(workers)
    layout = Layout([700])
    bits = random.random((workers, 700)) < 0.5
    ballots = [ballot_of(layout, [np.where(b, -1, 1).astype(np.float32)]) for b in bits]
    for step in (1, 3, workers):
        tally, verdict = Tally(layout, workers), Verdict(layout, "abstain")
        for first in range(0, workers, step):
            tally.add(ballots[first : first + step])
        planes = tally.counters().numpy()
        counts = sum(reference.unpack(plane, 700).astype(int) << k for k, plane in enumerate(planes))
        assert counts.tolist() == bits.sum(axis=0).tolist()
        tally.decide(0, verdict)
        negative, tied = reference.majority(bits, "abstain")
        assert verdict.words.tobytes() == reference.pack(negative).tobytes()
        assert verdict.ties.tobytes() == reference.pack(tied).tobytes()


def test_too_many_ballots_are_refused() -> None:
    layout = Layout([10])
    tally = Tally(layout, 1)
    tally.add([ballot_of(layout, [ones(10)])])
    with pytest.raises(ValueError, match="2 ballots for a tally of 1"):
        tally.add([ballot_of(layout, [ones(10)])])


@pytest.mark.parametrize("parameters", [0, 1, 63, 64, 65, 200])
def test_presence_survives_the_header(parameters: int) -> None:
    layout = Layout([1] * parameters)
    present = np.random.default_rng(parameters).random(parameters) < 0.5
    header = np.zeros(layout.header, np.uint64)
    layout.write_presence(present, header)
    assert layout.read_presence(header).tolist() == present.tolist()


@pytest.mark.parametrize(
    "numels, count, scales, words, message",
    [
        ([70, 3], 1, 2, 4, "2 parameters wants as many gradients, betas and gammas; got 1, 2 and 2"),
        ([70, 3], 2, 1, 4, "got 2, 1 and 1"),
        ([70, 4], 2, 2, 4, "gradient 1 has 4 numbers, and the layout wants 3"),
        ([70, 3], 2, 2, 3, "the ballot has 3 words; wanted layout.message, 4"),
    ],
)
def test_what_a_kernel_would_read_or_write_beyond_its_end_is_refused(
    numels: list[int], count: int, scales: int, words: int, message: str
) -> None:
    gradients, ballot = [torch.ones(numel) for numel in numels][:count], torch.zeros(words, dtype=torch.uint64)
    with pytest.raises(ValueError, match=message):
        kernels.sign_ballot(Layout([70, 3]), gradients, None, ones(scales), ones(scales), "plus", 0, ballot)


def test_a_momentum_that_is_too_short_is_refused() -> None:
    ballot = torch.zeros(2, dtype=torch.uint64)
    with pytest.raises(ValueError, match=r"momentum has 10 numbers; wanted 64 \* layout.words, 64"):
        kernels.sign_ballot(Layout([10]), [torch.ones(10)], torch.zeros(10), ones(1), ones(1), "plus", 0, ballot)
