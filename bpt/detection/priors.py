"""Prior boxes: those at each place of a feature map, of which a net tells how far the objects differ (SSD, section
2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SAME = 1e-6  # ratios that differ by less are one


def aspect_ratios(given: Sequence[float], flip: bool) -> tuple[float, ...]:
    """1, then those ``given``, each followed by its inverse if ``flip``; without repetitions."""
    ratios = [1.0]
    for ratio in given:
        if all(abs(ratio - other) >= _SAME for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return tuple(ratios)


def prior_sizes(smallest: Sequence[float], largest: Sequence[float], ratios: Sequence[float]) -> NDArray[np.float32]:
    """Width and height, in pixels, of the prior boxes of each place: (number, 2).

    For each of ``smallest``: a square of that size; if there are ``largest``, one of the geometric mean of both; then
    one of the first area for each ratio (width : height) but 1. As in SSD's Caffe, sizes lose what follows the point.
    """
    sizes: list[tuple[float, float]] = []
    for index, small in enumerate(map(int, smallest)):
        sizes.append((small, small))
        if largest:
            mean = (small * int(largest[index])) ** 0.5
            sizes.append((mean, mean))
        sizes += [(small * r**0.5, small / r**0.5) for r in ratios if abs(r - 1) >= _SAME]
    return np.array(sizes, np.float32)


def prior_boxes(
    places: tuple[int, int],
    image: tuple[int, int],
    step: tuple[float, float],
    offset: float,
    sizes: NDArray[np.float32],
) -> NDArray[np.float32]:
    """The boxes of all places, row by row: (rows · columns · number, 4), in parts of the image.

    Args:
        places: rows and columns of the feature map.
        image: height and width, in pixels.
        step: from one place to the next, in pixels, downwards and to the right.
        offset: of a box's centre, in steps from where its place begins.
        sizes: width and height of the boxes of a place: (number, 2).
    """
    y, x = ((np.arange(count, dtype=np.float32) + offset) * s for count, s in zip(places, step, strict=True))
    centres = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), -1)[:, :, np.newaxis]
    boxes = np.concatenate((centres - sizes / 2, centres + sizes / 2), -1)
    boxes /= np.array((image[1], image[0]) * 2, np.float32)
    return boxes.reshape(-1, 4).astype(np.float32)
