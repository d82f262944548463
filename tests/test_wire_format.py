"""The packing of paper 1's code: its test vector, its layout, its ties, and the way to this package's words and back."""

import numpy as np
import pytest

from mpisign import reference, seeding
from mpisign.wire_format import from_reference, pack_reference, to_reference, unpack_reference, vote_reference

SIZES = [0, 1, 31, 32, 33, 63, 64, 65, 1001]


def vector(d: int, worker: int = 0) -> np.ndarray:
    return seeding.generator(0, worker, "values").standard_normal(d).astype(np.float32)


def documented_vector() -> np.ndarray:
    i = np.arange(30)
    return np.array([1, -1, 0, -2, 3, -4, 5, -6, 7, 8, *((-1.0) ** (i // 3) * (i + 1))], np.float32)


def test_the_documented_vector_has_the_documented_words() -> None:
    words = pack_reference(documented_vector())
    assert words.dtype == np.int32
    assert words.tolist() == [19173376, -210915328]
    assert [int(word) for word in words.view(np.uint32)] == [0x01249000, 0xF36DB000]
    np.testing.assert_array_equal(unpack_reference(words, 40), np.where(documented_vector() < 0, -1, 1))


@pytest.mark.parametrize("d", SIZES)
def test_unpacking_gives_the_signs_back(d: int) -> None:
    values = vector(d)
    words = pack_reference(values)
    signs = unpack_reference(words, d)
    assert len(words) == -(-d // 32)
    assert signs.dtype == np.float32
    np.testing.assert_array_equal(signs, np.where(values < 0, -1, 1))
    np.testing.assert_array_equal(pack_reference(signs), words)


@pytest.mark.parametrize("d", [1, 32, 33, 65, 1001])
def test_element_rk_plus_j_is_bit_31_minus_r_of_word_j(d: int) -> None:
    words = -(-d // 32)
    for e in range(d):
        values = np.ones(d, np.float32)
        values[e] = -1
        expected = np.zeros(words, np.uint32)
        expected[e % words] = 1 << (31 - e // words)
        np.testing.assert_array_equal(pack_reference(values).view(np.uint32), expected)


def test_packing_follows_the_loop_of_the_document() -> None:
    d, count = 1001, 32
    rows = np.zeros(32 * count, bool)
    rows[:d] = vector(d) < 0
    words = np.zeros(count, np.uint32)
    for row in rows.reshape(32, count):
        words = (words << np.uint32(1)) | row
    np.testing.assert_array_equal(pack_reference(vector(d)).view(np.uint32), words)


def test_zeros_of_either_sign_and_padding_are_positive() -> None:
    assert pack_reference(np.array([0.0, -0.0], np.float32)).tolist() == [0]
    np.testing.assert_array_equal(unpack_reference(np.zeros(1, np.int32), 2), [1, 1])


def test_decoding_leaves_its_input_as_it_is() -> None:
    words = np.stack([pack_reference(vector(65, worker)) for worker in range(3)])
    before = words.copy()
    unpack_reference(words[0], 65)
    vote_reference(words, 65)
    from_reference(words[1], 65)
    np.testing.assert_array_equal(words, before)


def test_a_tie_is_positive() -> None:
    ballots = np.array([[1, -1, 1, -1], [1, 1, -1, -1]], np.float32)
    verdict = vote_reference(np.stack([pack_reference(ballot) for ballot in ballots]), 4)
    np.testing.assert_array_equal(unpack_reference(verdict, 4), [1, 1, 1, -1])


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("d", SIZES)
def test_votes_are_those_of_the_specification(d: int, workers: int) -> None:
    values = np.stack([vector(d, worker) for worker in range(workers)])
    verdict = vote_reference(np.stack([pack_reference(row) for row in values]), d)
    negative, _ = reference.majority(values < 0, "plus")
    np.testing.assert_array_equal(unpack_reference(verdict, d) < 0, negative)


@pytest.mark.parametrize("d", SIZES)
def test_words_go_to_the_other_layout_and_back(d: int) -> None:
    values = vector(d)
    theirs, ours = pack_reference(values), reference.pack(values < 0)
    np.testing.assert_array_equal(from_reference(theirs, d), ours)
    np.testing.assert_array_equal(to_reference(ours, d), theirs)
    assert from_reference(theirs, d).dtype == np.uint64


def test_what_stands_in_the_padding_is_dropped() -> None:
    all_ones = np.full(2, -1, np.int32)
    assert from_reference(all_ones, 40).tolist() == [(1 << 40) - 1]
    assert to_reference(np.full(1, 2**64 - 1, np.uint64), 1).view(np.uint32).tolist() == [1 << 31]


WRONG = [
    lambda: pack_reference(np.array([1, np.nan], np.float32)),
    lambda: pack_reference(np.ones((2, 2), np.float32)),
    lambda: unpack_reference(np.zeros(1, np.int32), 33),
    lambda: unpack_reference(np.zeros(2, np.int32), 32),
    lambda: unpack_reference(np.zeros(0, np.int32), -1),
    lambda: vote_reference(np.zeros((0, 1), np.int32), 1),
    lambda: vote_reference(np.zeros(1, np.int32), 1),
    lambda: from_reference(np.zeros(1, np.int32), 33),
    lambda: to_reference(np.zeros(2, np.uint64), 64),
]


@pytest.mark.parametrize("call", WRONG)
def test_wrong_input_is_refused(call) -> None:
    with pytest.raises(ValueError):
        call()
