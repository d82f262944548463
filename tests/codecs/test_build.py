"""Codecs by name, of a file of one's own, or by function."""

import pytest
import torch

from mpisign import codecs
from mpisign.errors import ConfigError, ParameterError

MINE = '''
import torch
from mpisign.codecs import Codec

class Signs(Codec):
    """One bit a coordinate would do; this one is an example."""

    def __init__(self, numel, size=1.0, name=""):
        super().__init__(numel, numel)
        self.size, self.name = size, name

    def encode(self, vector, key):
        return (vector < 0).to(torch.int64).view(torch.uint64)

    def decode(self, message):
        return self.size * (1 - 2 * message.view(torch.int64).float())

nothing = 3
'''


def test_a_codec_of_ones_own_takes_its_arguments_as_numbers_and_text(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    for spec, size, name in (("", 1.0, ""), (":3", 3, ""), (":0.5:max", 0.5, "max")):
        codec = codecs.build(f"{file}:Signs{spec}", 2)
        assert (codec.size, codec.name, codec.nbytes) == (size, name, 16)
        assert codec.decode(codec.encode(torch.tensor([-5.0, 2.0]), 0)).tolist() == [-size, size]
    with pytest.raises(ParameterError, match=r"mine\.py:nothing: 'int' object is not callable"):
        codecs.build(f"{file}:nothing", 2)
    with pytest.raises(ConfigError, match="has no Sign "):
        codecs.build(f"{file}:Sign", 2)


def test_a_name_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no such codec \(did you mean 'qsgd'\?\)"):
        codecs.build("qsdg:4", 2)


def test_a_function_must_give_a_codec() -> None:
    assert codecs.build(lambda numel: codecs.build("float16", numel), 3).numel == 3
    with pytest.raises(ParameterError, match=r"wanted a mpisign\.codecs\.Codec, got 5"):
        codecs.build(lambda numel: 5, 3)
