import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def test_every_used_bit_is_shown_as_a_figure_bit_0_first():
    ax = plotting.words([0b1101, 2**63], [4, 64])
    figures = "".join(text.get_text() for text in ax.texts)
    assert figures == "1011" + "0" * 63 + "1"
    assert [text.get_position() for text in ax.texts[:2]] == [(0, 0), (1, 0)]


def test_ones_zeros_and_padding_have_three_colours():
    patches = plotting.words(np.array([1], np.uint64), [2]).patches
    one, zero, *padding = [patch.get_facecolor() for patch in patches]
    assert len(padding) == 62
    assert len({one, zero, *padding}) == 3


def test_words_bear_their_names():
    ax = plotting.words([0, 1], [1, 1], names=["header", "signs"])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["header", "signs"]
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    "numbers, used, names", [([1], [1, 2], []), ([1], [65], []), ([1], [-1], []), ([1], [1], "ab")]
)
def test_numbers_that_do_not_fit_are_refused(numbers, used, names):
    with pytest.raises(ValueError, match="wanted as many of each, and 0 to 64 bits"):
        plotting.words(numbers, used, names=names)
