"""The true objects of a batch, as in SSD's label blob.

A row of the blob is (image, label, instance, xmin, ymin, xmax, ymax, difficult).
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

ROW = 8  # numbers in a row
NO_IMAGE = -1


class Objects(NamedTuple):
    """The objects of one image: labels (G,), boxes (G, 4), and a mask (G,) of the difficult ones."""

    labels: Tensor
    boxes: Tensor
    difficult: Tensor


def objects_by_image(rows: Tensor, images: int, use_difficult: bool = True) -> list[Objects]:
    """Return the objects of ``rows`` (…, 8), image by image; rows without an image are ignored.

    Args:
        use_difficult: whether to include difficult objects.
    """
    rows = rows.reshape(-1, ROW)
    if not use_difficult:
        rows = rows[rows[:, 7] == 0]
    found = (rows[rows[:, 0] == image] for image in range(images))
    return [Objects(own[:, 1].long(), own[:, 3:7], own[:, 7] != 0) for own in found]
