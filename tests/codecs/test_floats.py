import numpy as np
import pytest
import torch

from mpisign import codecs
from mpisign.codecs.floats import BFloat16, Float16, Float32

SIZES = [0, 1, 63, 64, 65, 1001]


@pytest.mark.parametrize("kind, bits", [(Float32, 32), (Float16, 16), (BFloat16, 16)])
def test_a_message_is_the_rounded_numbers_and_less_than_a_word_more(kind: type[Float32], bits: int) -> None:
    for numel in SIZES:
        vector, codec = torch.randn(numel, generator=torch.Generator().manual_seed(numel)), kind(numel)
        message = codec.encode(vector, 0)
        assert codec.nbytes == message.nbytes == -(-numel * bits // 64) * 8
        assert message.numpy().tobytes()[: numel * bits // 8] == bytes(vector.to(kind.dtype).view(torch.uint8).tolist())
        assert torch.equal(codec.decode(message), vector.to(kind.dtype).float())


def test_float32_loses_nothing() -> None:
    vector = torch.from_numpy(np.array([0.1, -0.0, 1e-45, 3.4028235e38, -1e-38], np.float32))
    back = Float32(5).decode(Float32(5).encode(vector, 0))
    assert back.numpy().tobytes() == vector.numpy().tobytes()


@pytest.mark.parametrize(
    "kind, largest, too_large", [(Float16, 65519.0, 65520.0), (BFloat16, 3.39e38, 3.4e38), (Float32, 3.4e38, np.inf)]
)
def test_what_would_become_infinite_is_not_accepted(kind: type[Float32], largest: float, too_large: float) -> None:
    codec = kind(2)
    for sign in (1, -1):
        fits, overflows = torch.tensor([0.0, sign * largest]), torch.tensor([0.0, sign * too_large])
        assert codec.accepts(fits)
        assert codec.decode(codec.encode(fits, 0)).isfinite().all()
        assert not codec.accepts(overflows)


def test_half_floats_keep_what_they_promise() -> None:
    vector = torch.logspace(-4, 4, 100)
    for name, error in (("float16", 2.0**-11), ("bfloat16", 2.0**-8)):  # half a unit in the last place
        codec = codecs.build(name, 100)
        assert ((codec.decode(codec.encode(vector, 0)) - vector).abs() <= error * vector).all()
    tiny = torch.tensor([2e-8])
    assert codecs.build("float16", 1).decode(codecs.build("float16", 1).encode(tiny, 0)).item() == 0
