"""Small grey pictures in a row, such as the digits that a worker has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pictures(images: Sequence[npt.NDArray[Any]], titles: Sequence[str] = ()) -> "list[Axes]":
    """Draw images [rows, columns] side by side, large numbers dark, all on one scale, with a title above each.

    Errors: ValueError where an image is not two-dimensional, none is given, or titles are too few.
    """
    from matplotlib import pyplot

    shapes = [np.shape(image) for image in images]
    if not shapes or any(len(shape) != 2 for shape in shapes) or len(titles) not in (0, len(shapes)):
        raise ValueError(
            f"images of shapes {shapes} and {len(titles)} titles: wanted one [rows, columns] or more, and as many titles or none"
        )
    low, high = min(float(np.min(image)) for image in images), max(float(np.max(image)) for image in images)
    _, axes = pyplot.subplots(1, len(shapes), figsize=(1.5 * len(shapes), 1.8), layout="constrained", squeeze=False)
    for ax, image, title in zip(axes[0], images, titles or [""] * len(shapes), strict=True):
        ax.imshow(image, cmap="Greys", vmin=low, vmax=high)
        ax.set_title(title, fontsize=11)
        ax.axis("off")
    return list(axes[0])
