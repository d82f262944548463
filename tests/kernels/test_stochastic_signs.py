"""The kernels of stochastic signs, their sums and scaled means, against reference.py, bit for bit."""

import numpy as np
import pytest
import torch
from test_kernels import SPECIALS, ones, tensors, values, words_of

from mpisign import kernels, reference
from mpisign.kernels import Layout, Tally

SIZES = [0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 1001]


def ballot_of(layout: Layout, arrays: list[np.ndarray], norm: float, key: int = 5) -> torch.Tensor:
    ballot = torch.full((layout.message,), 2**64 - 1, dtype=torch.uint64)
    kernels.stochastic_sign_ballot(layout, tensors(arrays), norm, key, ballot)
    return ballot


def signs_of(bits: np.ndarray) -> np.ndarray:
    return np.where(bits, -1, 1)


def plain_ballot(layout: Layout, bits: list[np.ndarray], present: np.ndarray) -> torch.Tensor:
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    count = len(layout.numels)
    gradients = [
        torch.from_numpy(signs_of(b).astype(np.float32)) if here else None
        for b, here in zip(bits, present, strict=True)
    ]
    kernels.sign_ballot(layout, gradients, None, ones(count), ones(count), "plus", 0, ballot)
    return ballot


@pytest.mark.parametrize("block", range(0, 1101, 100))
def test_norms_and_stochastic_signs_agree_with_the_reference_at_every_size(block: int) -> None:
    for numel in range(block, min(block + 100, 1101)):
        layout = Layout([numel])
        for vector in (values(numel), np.random.default_rng(numel).standard_normal(numel).astype(np.float32)):
            norm = kernels.l2_norm(layout, tensors([vector]))
            assert norm == reference.l2_norm([vector])
            assert kernels.l1_norms(layout, tensors([vector])).tolist() == [reference.power_sum(vector, 1)]
            ballot = ballot_of(layout, [vector], norm)
            votes = bool(np.isfinite(norm) and norm > 0)
            assert layout.read_presence(ballot.numpy()[: layout.header]).tolist() == [votes]
            if votes:
                bits = reference.pack(reference.stochastic_negatives(vector, norm, 5))
                assert ballot.numpy()[layout.header :].tobytes() == bits.tobytes()
            else:
                assert not ballot.numpy().any()


@pytest.mark.parametrize("value", SPECIALS)
def test_a_single_coordinate_is_its_own_sign_whatever_its_size(value: float) -> None:
    layout = Layout([1])
    norm = kernels.l2_norm(layout, tensors([np.array([value])]))
    assert norm == abs(value)
    for key in range(20):
        bits = ballot_of(layout, [np.array([value])], norm, key).numpy()
        assert bits.tolist() == ([0, 0] if value == 0 else [1, int(value < 0)])


def test_the_vector_is_that_of_all_parameters_and_a_part_of_it_draws_the_same_bits() -> None:
    layout, arrays = Layout([130, 0, 1, 700]), [values(130), values(0), values(1), values(700, 3) / 4]
    arrays = [np.clip(array, -3, 3) for array in arrays]
    norm = kernels.l2_norm(layout, tensors(arrays))
    assert norm == reference.l2_norm(arrays)
    assert norm == pytest.approx(np.linalg.norm(np.concatenate(arrays).astype(np.float64)), rel=1e-7)  # float32
    whole = ballot_of(layout, arrays, norm)
    for p, array in enumerate(arrays):
        bits = reference.stochastic_negatives(array, norm, 5, int(layout.starts[p]))
        assert words_of(layout, whole.numpy()[layout.header :], p).tobytes() == reference.pack(bits).tobytes()
    for start, stop in ((0, 2), (2, 7), (7, layout.words)):
        part = layout.part(start, stop)
        pieces = [
            array[np.clip(64 * (start - at), 0, len(array)) : np.clip(64 * (stop - at), 0, len(array))]
            for array, at in zip(arrays, layout.starts.tolist(), strict=True)
        ]
        cut = ballot_of(part, pieces, norm).numpy()[part.header :]
        assert cut.tobytes() == whole.numpy()[layout.header + start : layout.header + stop].tobytes()


def test_what_is_absent_enters_neither_the_norm_nor_the_ballot() -> None:
    layout, vector = Layout([70, 3]), torch.tensor([3.0, 0.0, 4.0])
    assert kernels.l2_norm(layout, [None, vector]) == 5
    assert kernels.l1_norms(layout, [None, vector]).tolist() == [0, 7]
    ballot = torch.full((layout.message,), 2**64 - 1, dtype=torch.uint64)
    assert kernels.stochastic_sign_ballot(layout, [None, vector], 5.0, 1, ballot)
    assert layout.read_presence(ballot.numpy()[:1]).tolist() == [False, True]
    assert ballot.tolist()[1:3] == [0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_zero_or_not_finite_or_too_large_abstains(bad: float) -> None:
    layout = Layout([65, 10])
    for vector in (np.zeros(65, np.float32), np.full(65, 3e38, np.float32), np.append(values(64), np.float32(bad))):
        arrays = [vector, np.zeros(10, np.float32)]
        norm = kernels.l2_norm(layout, tensors(arrays))
        assert norm == 0 or not np.isfinite(norm)
        assert not ballot_of(layout, arrays, norm).numpy().any()


def test_the_stochastic_sign_times_the_norm_is_unbiased() -> None:
    vector, draws = np.array([3, -1, 0, 0.5, -2, 1e-3, 0.2], np.float32), 20_000
    layout = Layout([7])
    norm = kernels.l2_norm(layout, tensors([vector]))
    ballot, tensor = torch.zeros(layout.message, dtype=torch.uint64), tensors([vector])
    total = np.zeros(7)
    for step in range(draws):
        kernels.stochastic_sign_ballot(layout, tensor, norm, kernels.stream(11, step), ballot)
        total += signs_of(reference.unpack(ballot.numpy()[1:], 7))
    # four standard errors of a mean of `draws` values ±norm with mean v
    assert (np.abs(norm * total / draws - vector) < 4 * np.sqrt((norm**2 - vector**2) / draws)).all()


def test_both_halves_of_a_coin_are_fair_and_independent() -> None:
    numel = 2**18
    layout = Layout([numel])
    signs = signs_of(reference.unpack(ballot_of(layout, [np.zeros(numel, np.float32)], 1.0).numpy()[1:], numel))
    for product in (
        signs[::2],
        signs[1::2],
        signs[::2] * signs[1::2],
        signs[1:] * signs[:-1],
        signs[64:] * signs[:-64],
    ):
        assert abs(product.mean()) < 4 / np.sqrt(len(product))  # four standard deviations


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 16, 33])
def test_sums_of_signs_agree_with_the_reference(workers: int) -> None:
    random = np.random.default_rng(workers)
    layout = Layout(SIZES)
    bits = [[random.random(n) < 0.5 for n in SIZES] for _ in range(workers)]
    present = random.random((workers, len(SIZES))) < 0.8
    tally, sums = Tally(layout, workers), torch.empty(64 * layout.words)
    tally.add([plain_ballot(layout, b, here) for b, here in zip(bits, present, strict=True)])
    kernels.sign_sums(layout, tally.counters().numpy(), tally.voters, sums)
    for p, (start, numel) in enumerate(zip(layout.starts.tolist(), SIZES, strict=True)):
        votes = np.array([b[p] for b in bits])[present[:, p]]
        assert sums[64 * start : 64 * start + numel].numpy().tobytes() == reference.sign_sum(votes).tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_means_of_scaled_signs_agree_with_the_reference(workers: int) -> None:
    random = np.random.default_rng(workers)
    layout = Layout(SIZES)
    bits = [[random.random(n) < 0.5 for n in SIZES] for _ in range(workers)]
    present = random.random((workers, len(SIZES))) < 0.8
    scales = random.lognormal(size=present.shape, sigma=5).astype(np.float32)
    ballots = torch.stack([plain_ballot(layout, b, here) for b, here in zip(bits, present, strict=True)])
    means = torch.full((layout.coordinates,), float("nan"))
    assert kernels.scaled_sign_means(layout, ballots, scales, means).tolist() == present.tolist()
    for p, mean in enumerate(torch.split(means, SIZES)):
        votes = np.array([b[p] for b in bits])[present[:, p]]
        expected = (
            reference.scaled_sign_mean(votes, scales[present[:, p], p]) if len(votes) else np.zeros(SIZES[p], "f4")
        )
        assert mean.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 100])
def test_the_mean_of_equal_workers_is_exactly_one_of_them(workers: int) -> None:
    layout, scale = Layout([1]), np.float32(0.1)
    ballots = torch.stack([plain_ballot(layout, [np.array([True])], np.array([True]))] * workers)
    mean = torch.empty(1)
    kernels.scaled_sign_means(layout, ballots, np.full((workers, 1), scale), mean)
    assert mean.tolist() == [-float(scale)]


def test_residuals_are_what_the_scaled_signs_leave_and_stay_where_absent() -> None:
    random = np.random.default_rng(0)
    layout = Layout([65, 0, 130])
    moved, errors = (torch.from_numpy(random.standard_normal(64 * layout.words).astype(np.float32)) for _ in range(2))
    before, scales = errors.clone(), np.array([0.3, 0.0, 0.7], np.float32)
    bits = [random.random(n) < 0.5 for n in (65, 0, 130)]
    kernels.residuals(layout, moved, scales, plain_ballot(layout, bits, np.array([True, True, False])), errors)
    expected = moved.numpy()[:65] - scales[0] * signs_of(bits[0]).astype(np.float32)
    assert errors[:65].numpy().tobytes() == expected.tobytes()
    assert torch.equal(errors[65:], before[65:])
