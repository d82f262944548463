import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot

from mpisign import plotting
from mpisign.tasks.partition import by_class, iid

LABELS = np.repeat(np.arange(4), 25)


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def discs(ax):
    """Radius of the disc of each (worker, class)."""
    return {tuple(int(place) for place in disc.center): disc.radius for disc in ax.patches}


def test_a_worker_of_one_class_has_one_disc_and_the_distance_is_said():
    ax = plotting.classes(LABELS, by_class(LABELS, 4, 0))
    assert sorted(discs(ax)) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert len(set(discs(ax).values())) == 1
    assert ax.get_title() == "largest disc: 25 samples; mean distance 0.75"  # 1 − 1/4


def test_the_area_of_a_disc_is_the_number_of_samples():
    parts = [np.array([0, 1, 2, 3, 25]), np.array([26, 50, 75])]
    drawn = discs(plotting.classes(LABELS, parts))
    assert sorted(drawn) == [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
    assert drawn[0, 0] / drawn[0, 1] == pytest.approx(2)  # 4 samples against 1


def test_workers_of_all_classes_alike_have_no_distance():
    assert plotting.classes(LABELS, [np.arange(100)] * 2).get_title().endswith("mean distance 0.00")


def test_it_draws_into_the_axes_it_is_given():
    ax = pyplot.subplots()[1]
    assert plotting.classes(LABELS, iid(LABELS, 3, 0), ax) is ax
    assert len(ax.patches) == 12


@pytest.mark.parametrize("parts", [[], [np.arange(3), np.arange(0)]])
def test_a_worker_without_samples_is_refused(parts):
    with pytest.raises(ValueError, match="wanted one worker or more, and each with some"):
        plotting.classes(LABELS, parts)
