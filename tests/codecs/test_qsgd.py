"""QSGD against reference.py bit for bit, its bits on the wire, and its mean."""

import math

import numpy as np
import pytest
import torch

from mpisign import codecs, kernels, reference
from mpisign.codecs.qsgd import QSGD, grouping
from mpisign.errors import ParameterError

SIZES = [0, 1, 2, 28, 29, 30, 63, 64, 65, 1001]
LEVELS = [1, 2, 3, 4, 5, 8, 16, 127, 128, 32767]


def values(numel: int, seed: int = 0) -> np.ndarray:
    """Numbers of many sizes, a fifth of them zeros of both signs."""
    random = np.random.default_rng((numel, seed))
    vector = random.standard_normal(numel) * 10.0 ** random.integers(-6, 3, numel)
    vector[random.random(numel) < 0.1] = 0.0
    vector[random.random(numel) < 0.1] = -0.0
    return vector.astype(np.float32)


def written(words: np.ndarray, codec: QSGD) -> list[int]:
    """The levels in a message, read as one long whole number by Python's arithmetic."""
    stream, base, levels = int.from_bytes(words.tobytes(), "little") >> 32, 2 * codec.levels + 1, []
    for start in range(0, codec.numel, codec.together):
        number = stream >> (start // codec.together * codec.bits) & ((1 << codec.bits) - 1)
        for _ in range(min(codec.together, codec.numel - start)):
            levels.append(number % base - codec.levels)
            number //= base
    return levels


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", LEVELS)
def test_levels_and_what_comes_back_agree_with_the_reference_at_every_size(levels: int, norm: str) -> None:
    for numel in SIZES:
        codec, vector = QSGD(numel, levels, norm), values(numel)
        size = reference.l2_norm([vector]) if norm == "l2" else np.abs(vector).max(initial=0)
        for key in (3, 2**63 - 1):
            expected = reference.qsgd_levels(vector, float(size), levels, key)
            message = codec.encode(torch.from_numpy(vector), key)
            assert message.numpy()[:1].view(np.float32)[0] == size
            assert written(message.numpy(), codec) == expected.tolist()
            back = (np.float64(size) * expected / levels).astype(np.float32)
            assert codec.decode(message).numpy().tobytes() == np.where(back == 0, np.float32(0), back).tobytes()


@pytest.mark.parametrize("levels", [1, 2, 4, 8, 16])
def test_the_wire_takes_no_more_than_two_percent_above_the_information(levels: int) -> None:
    numel = 100_003
    bits = 8 * QSGD(numel, levels).nbytes / numel
    assert bits <= 1.02 * math.log2(2 * levels + 1)
    assert bits < 0.86 * math.ceil(math.log2(2 * levels + 1))  # what whole bits would take


@pytest.mark.parametrize("base", [3, 5, 7, 9, 17, 33, 255, 257, 65535])
def test_groups_fit_into_their_bits_and_no_shorter_ones_would(base: int) -> None:
    count, bits = grouping(base)
    assert base**count <= 2**bits < 2 * base**count
    assert bits <= 63
    assert bits / count == min(((base**k - 1).bit_length()) / k for k in range(1, 40) if base**k <= 2**63)


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", [1, 4, 127])
def test_the_mean_over_coins_is_the_vector(levels: int, norm: str) -> None:
    vector, draws = torch.tensor([3.0, -1.0, 0.0, 0.5, -2.0, 1e-3, 0.2]), 10_000
    codec = QSGD(7, levels, norm)
    size = float(vector.norm() if norm == "l2" else vector.abs().max())
    backs = torch.stack([codec.decode(codec.encode(vector, kernels.stream(7, step))) for step in range(draws)]).double()
    # a value that is one step of N/s up with probability p has variance p(1−p)(N/s)²: four standard errors, and N·2⁻²³ for
    # the rounding of p, and of the value
    p = (vector.abs().double() / size * levels).remainder(1)
    allowed = 4 * (p * (1 - p) / draws).sqrt() * size / levels + 2.0**-22 * size
    assert ((backs.mean(0) - vector).abs() < allowed).all()


def test_the_largest_coordinate_arrives_as_it_is_with_the_max_norm() -> None:
    vector = torch.tensor([0.3, -7.7, 0.1])
    for levels in (1, 3, 127):
        codec = QSGD(3, levels, "max")
        for key in range(20):
            assert codec.decode(codec.encode(vector, key))[1] == vector[1]


def test_one_level_is_ternary() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for norm in ("l2", "max"):
        back = QSGD(1000, 1, norm)
        back = back.decode(back.encode(vector, 0))
        size = float(back.abs().max())
        assert set(back.tolist()) == {-size, 0.0, size}
        assert (back * vector >= 0).all()


@pytest.mark.parametrize("levels", LEVELS)
def test_with_the_max_norm_what_came_back_comes_back_again(levels: int) -> None:
    for seed in range(5):
        codec, vector = QSGD(1001, levels, "max"), torch.from_numpy(values(1001, seed))
        back = codec.decode(codec.encode(vector, 1))
        for key in range(3):
            assert torch.equal(codec.decode(codec.encode(back, key)), back)


def test_coins_differ_between_steps_and_neighbours() -> None:
    codec, vector = QSGD(2**16, 1, "max"), torch.full((2**16,), 0.5)
    vector[-1] = 1.0
    ups = [codec.decode(codec.encode(vector, kernels.stream(1, step))).numpy()[:-2] for step in range(2)]
    signs = 2 * np.array(ups) - 1
    for product in (signs[0], signs[0] * signs[1], signs[0][1:] * signs[0][:-1], signs[0][::2] * signs[0][1::2]):
        assert abs(product.mean()) < 4 / np.sqrt(product.size)  # four standard deviations


def test_numbers_at_the_ends_of_float32_come_back() -> None:
    for number in (1e-45, 3e-39, 1.17549435e-38, 3.4028235e38):
        for norm in ("l2", "max"):
            codec = QSGD(1, 4, norm)
            assert codec.decode(codec.encode(torch.tensor([number]), 0)).item() == np.float32(number)


def test_a_vector_whose_norm_is_too_large_is_not_accepted() -> None:
    huge = torch.full((10,), 3e38)
    assert not QSGD(10, 4).accepts(huge)
    assert QSGD(10, 4, "max").accepts(huge)


def test_a_message_of_garbage_is_read_to_its_end_and_no_further() -> None:
    for numel in SIZES:
        codec = QSGD(numel, 4)
        noise = np.random.default_rng(numel).integers(2**63, size=codec.words).astype(np.uint64)
        assert codec.decode(torch.from_numpy(noise)).shape == (numel,)


@pytest.mark.parametrize(
    "spec, words",
    [
        ("qsgd:0", "levels must be a whole number from 1 to 32767, got 0"),
        ("qsgd:32768", "levels must be"),
        ("qsgd:2.5", "got 2.5"),
        ("qsgd:4:l1", "norm must be l2 or max, got 'l1'"),
        ("qsgd", "levels"),
        ("qsgd:4:max:1", "codec qsgd:4:max:1: "),
    ],
)
def test_bad_arguments_are_named(spec: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        codecs.build(spec, 10)
