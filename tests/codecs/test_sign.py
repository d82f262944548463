import numpy as np
import pytest
import torch

from mpisign import codecs, testing
from mpisign.codecs.sign import ScaledSign


def test_it_sends_the_signs_and_the_mean_magnitude() -> None:
    vector = torch.tensor([3.0, -1.0, 0.0, -0.0, 2.0, -6.0])
    codec = ScaledSign(6)
    message = codec.encode(vector, 0)
    assert codec.decode(message).tolist() == [2, -2, 2, 2, 2, -2]
    assert message.tolist() == [int(np.float32(2).view(np.uint32)), 0b100010]


@pytest.mark.parametrize("numel", [0, 1, 63, 64, 65, 1001])
def test_it_takes_one_bit_a_coordinate_and_one_word(numel: int) -> None:
    assert codecs.build("sign", numel).nbytes == 8 * (1 + (numel + 63) // 64)


def test_what_is_lost_is_what_the_formula_says() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    codec = ScaledSign(1000)
    lost = float((vector - codec.decode(codec.encode(vector, 0))).square().sum())
    expected = float(vector.square().sum() - vector.abs().sum() ** 2 / 1000)
    assert lost == pytest.approx(expected, rel=1e-4)  # sums of 1000 float32


def test_large_vectors_are_accepted_as_long_as_their_mean_is_finite() -> None:
    codec = ScaledSign(2)
    assert codec.accepts(torch.tensor([3e38, 3e38]))
    assert not codec.accepts(torch.tensor([3e38, float("inf")]))


def test_it_keeps_the_contract() -> None:
    testing.check_codec(ScaledSign)
