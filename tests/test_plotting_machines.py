import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting
from mpisign.plotting.axes import color


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def numbers(ax):
    return [text.get_text() for text in ax.texts]


def test_a_rank_has_a_core_for_each_of_its_threads():
    ax = plotting.machines(nodes=2, cores=4, ranks=2, threads=2)
    assert numbers(ax) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["node 0", "node 1"]


def test_a_core_without_a_rank_is_grey_and_has_no_number():
    ax = plotting.machines(nodes=1, cores=3, ranks=1, threads=1)
    assert numbers(ax) == ["0"]
    assert len({patch.get_facecolor() for patch in ax.patches}) == 2


def test_more_threads_than_cores_share_them():
    ax = plotting.machines(nodes=1, cores=2, ranks=2, threads=2)
    assert numbers(ax) == ["0", "1", "0", "1"]
    assert [patch.get_height() for patch in ax.patches] == [0.44] * 4
    assert matplotlib.colors.to_hex(ax.patches[1].get_facecolor()).upper() == color(1)


@pytest.mark.parametrize("wrong", ["nodes", "cores", "ranks", "threads"])
def test_a_number_below_1_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{wrong} 0"):
        plotting.machines(**{"nodes": 1, "cores": 1, "ranks": 1, "threads": 1, wrong: 0})
