import io

import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib
import torch
from matplotlib.colors import to_rgb

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting, simulate
from mpisign.comm import Message


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    return pyplot.subplots()[1]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def arrows(ax):
    """The (rank, rank) of each arrow, in order of time."""
    drawn = [(text.xyann, text.xy) for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    assert all(start[0] < end[0] for start, end in drawn), "an arrow goes back in time"
    return [(start[1], end[1]) for start, end in sorted(drawn)]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def picture(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    return buffer.getvalue()


def luminance(color):
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), to_rgb(color), strict=True))


def test_every_message_of_a_run_is_an_arrow_in_the_order_of_sending_with_its_bytes():
    log = []
    simulate(3, lambda comm: comm.gather(torch.zeros(5)), log=log)
    ax = plotting.messages(log, 3)
    assert arrows(ax) == [(1, 0), (2, 0)]
    assert texts(ax) == ["20 B", "20 B"]
    assert labels(ax.get_yticklabels()) == ["rank 0", "rank 1", "rank 2"]


def test_rank_0_is_on_top():
    bottom, top = plotting.messages([Message(0, 1, 0, 8)], 2).get_ylim()
    assert top < 0 < 1 < bottom


def test_each_verb_is_named_once_below_its_messages():
    log = []
    simulate(3, lambda comm: (comm.gather(torch.zeros(5)), comm.bcast(torch.zeros(5))), log=log)
    assert labels(plotting.messages(log, 3).get_xticklabels()) == ["gather", "bcast"]


def test_large_messages_are_easy_to_read():
    assert texts(plotting.messages([Message(0, 1, 0, 1_234_567)], 2)) == ["1,234,567 B"]


def test_ranks_bear_the_names_they_are_given():
    ax = plotting.messages([Message(0, 1, 0, 8)], 2, names=["server", "worker"])
    assert labels(ax.get_yticklabels()) == ["server", "worker"]


@pytest.mark.parametrize("size", [1, 2, 16])
def test_a_run_without_messages_can_be_drawn(size):
    assert picture(plotting.messages([], size))


def test_a_picture_goes_where_it_is_told(ax):
    assert plotting.messages([], 2, ax) is ax
    assert plotting.votes([[1]], [1], ax) is ax


def test_more_ranks_than_colours_can_be_drawn():
    log = [Message(rank, 0, 0, 8) for rank in range(1, 16)]
    assert len(arrows(plotting.messages(log, 16))) == 15


def test_a_message_of_a_rank_beyond_the_size_is_refused():
    with pytest.raises(ValueError, match="a message from rank 0 to rank 3, but size is 3"):
        plotting.messages([Message(0, 3, 0, 8)], 3)


def test_too_few_names_are_refused():
    with pytest.raises(ValueError, match="1 names for 2 ranks: give one for each, or none"):
        plotting.messages([], 2, names=["server"])
    with pytest.raises(ValueError, match="1 names for 2 workers: give one for each, or none"):
        plotting.votes([[1], [1]], [1], names=["server"])


def test_a_vote_shows_the_sign_of_each_worker_and_coordinate_and_the_verdict_below():
    ax = plotting.votes([[2.5, -1, 0], [1, -3, 4]], [1, -1, 0])
    assert "".join(texts(ax)) == "+−0" + "+−+" + "+−0"
    assert labels(ax.get_yticklabels()) == ["worker 0", "worker 1", "verdict"]


def test_the_last_row_bears_the_name_it_is_given():
    assert labels(plotting.votes([[1]], [1], below="truth").get_yticklabels()) == ["worker 0", "truth"]


def test_a_vote_can_be_drawn_from_tensors():
    signs = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    assert picture(plotting.votes(signs, signs.sum(0).sign(), names=["a", "b", "c"]))


@pytest.mark.parametrize("signs, verdict", [([1, -1], [1]), ([[1, -1]], [1]), ([[1]], [[1]])])
def test_a_vote_whose_shapes_do_not_fit_is_refused(signs, verdict):
    with pytest.raises(ValueError, match=r"wanted \[workers, coordinates\] and \[coordinates\]"):
        plotting.votes(signs, verdict)


def test_plus_minus_and_tie_can_be_told_apart_without_colours():
    patches = plotting.votes([[1, -1, 0]], [1, -1, 0]).patches
    dark, middle, light = sorted({luminance(patch.get_facecolor()) for patch in patches})
    assert min(middle - dark, light - middle) > 0.15


def test_no_two_ranks_of_seven_share_a_colour():
    assert len(set(plotting.COLORS)) == 7
