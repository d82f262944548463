"""Small grey pictures in a row, such as the digits that a worker has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pictures(images: Sequence[npt.ArrayLike], titles: Sequence[str] = ()) -> "list[Axes]":
    """Draw images [rows, columns] side by side, large numbers dark, all on one scale, with a title above each.

    Errors: ValueError where an image is not two-dimensional, none is given, or titles are too few.
    """
    from matplotlib import pyplot

    arrays = [np.asarray(image) for image in images]
    shapes = [array.shape for array in arrays]
    if not shapes or any(len(shape) != 2 for shape in shapes) or len(titles) not in (0, len(shapes)):
        raise ValueError(
            f"images of shapes {shapes} and {len(titles)} titles: wanted one [rows, columns] or more, and as many titles or none"
        )
    low, high = min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)
    _, axes = pyplot.subplots(1, len(shapes), figsize=(1.5 * len(shapes), 1.8), layout="constrained", squeeze=False)
    for ax, image, title in zip(axes[0], arrays, titles or [""] * len(shapes), strict=True):
        ax.imshow(image, cmap="Greys", vmin=low, vmax=high)
        ax.set_title(title, fontsize=11)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_color("#BBBBBB")  # light borders of a picture must not run into the page
    return list(axes[0])
