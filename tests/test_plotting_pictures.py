import pytest

pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

import matplotlib

matplotlib.use("Agg")

import numpy as np
import torch
from matplotlib import pyplot

from mpisign import plotting


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    pyplot.close("all")


def test_pictures_are_drawn_side_by_side_on_one_scale_under_their_titles():
    dark, light = np.full((8, 8), 16), torch.zeros(8, 8)
    axes = plotting.pictures([dark, light], ["dark", "light"])
    assert [ax.get_title() for ax in axes] == ["dark", "light"]
    assert [ax.images[0].get_clim() for ax in axes] == [(0, 16)] * 2
    assert (axes[0].images[0].get_array() == 16).all()


@pytest.mark.parametrize("images, titles", [([], []), ([np.zeros(64)], []), ([np.zeros((8, 8))], ["a", "b"])])
def test_what_is_no_picture_or_has_not_its_title_is_refused(images, titles):
    with pytest.raises(ValueError, match="wanted one"):
        plotting.pictures(images, titles)
