"""Prior boxes: default boxes at each place of a feature map (SSD, section 2.2).

A net predicts the differences of the objects from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SAME = 1e-6  # ratios that differ by less are equal


def aspect_ratios(given: Sequence[float], flip: bool) -> tuple[float, ...]:
    """Return 1 and the ``given`` ratios, each followed by its inverse if ``flip``, without repetitions."""
    ratios = [1.0]
    for ratio in given:
        if all(abs(ratio - other) >= _SAME for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return tuple(ratios)


def prior_sizes(smallest: Sequence[float], largest: Sequence[float], ratios: Sequence[float]) -> NDArray[np.float32]:
    """Return width and height, in pixels, of the prior boxes of each place: (number, 2).

    Each of ``smallest`` gives a square of that size. If there are ``largest``, a square of the geometric mean of both
    follows. Then comes a box with the first square's area for each ratio (width : height) except 1. As in SSD's Caffe,
    sizes are truncated to integers.
    """
    sizes: list[tuple[float, float]] = []
    for index, small in enumerate(map(int, smallest)):
        sizes.append((small, small))
        if largest:
            mean = (small * int(largest[index])) ** 0.5
            sizes.append((mean, mean))
        sizes += [(small * r**0.5, small / r**0.5) for r in ratios if abs(r - 1) >= _SAME]
    return np.array(sizes, np.float32).reshape(-1, 2)


def dense_priors(
    fixed: Sequence[float], densities: Sequence[int], fixed_ratios: Sequence[float], ratios: Sequence[float]
) -> NDArray[np.float32]:
    """Return width, height and the shift of the centre, to the right and downwards, of dense boxes: (number, 4).

    FaceBoxes (Zhang et al., 2017, section 3.2): each of the ``fixed`` sizes has ``density`` rows of ``density`` boxes
    at each place; their distance is a fraction of the size. The boxes are squares and, for each of ``ratios`` except 1,
    boxes of the same area. If there are ``fixed_ratios``, all boxes have these ratios. As in FaceBoxes' Caffe, squares,
    half sizes and distances are truncated to integers.
    """
    priors: list[tuple[float, float, float, float]] = []
    for index, size in enumerate(fixed):
        density = densities[index] if densities else 1
        apart = int(size / density)
        shifts = [apart / 2 - int(size) // 2 + step * apart for step in range(density)]
        others = fixed_ratios or [ratio for ratio in ratios if abs(ratio - 1) >= _SAME]
        boxes = [] if fixed_ratios else [(float(int(size)), float(int(size)))]
        boxes += [(size * ratio**0.5, size / ratio**0.5) for ratio in others]
        priors += [(width, height, right, down) for width, height in boxes for down in shifts for right in shifts]
    return np.array(priors, np.float32).reshape(-1, 4)


def prior_boxes(
    places: tuple[int, int],
    image: tuple[int, int],
    step: tuple[float, float],
    offset: float,
    sizes: NDArray[np.float32],
    shifts: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the boxes of all places, row by row: (rows · columns · number, 4), as fractions of the image.

    Args:
        places: rows and columns of the feature map.
        image: height and width in pixels.
        step: distance of neighbouring places in pixels, downwards and to the right.
        offset: position of a box's centre in its place, in steps from the upper left corner.
        sizes: width and height of the boxes of a place in pixels: (number, 2).
        shifts: shift of each centre from the place's centre, to the right and downwards, in pixels: (number, 2).
    """
    y, x = ((np.arange(count, dtype=np.float32) + offset) * s for count, s in zip(places, step, strict=True))
    centres = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), -1)[:, :, np.newaxis]
    if shifts is not None:
        centres = centres + shifts
    boxes = np.concatenate((centres - sizes / 2, centres + sizes / 2), -1)
    boxes /= np.array((image[1], image[0]) * 2, np.float32)
    return boxes.reshape(-1, 4).astype(np.float32)
