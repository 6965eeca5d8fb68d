"""What all layers share that look at regions of images (Caffe's forks: "ROI", a region of interest)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bpt.graph.layer_spec import LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import Family, Layer
from bpt.nn.layers.labels import row_indices

Regions = tuple[Tensor, Tensor]
"""Which image each region is of, ``(R,)``, and its corners x1, y1, x2, y2 in pixels of that image, ``(R, 4)``."""


class RegionLayer(Layer):
    """Bottoms: features ``(N, channels, H, W)``, and regions ``(R, 5)``: image, x1, y1, x2, y2, which get no diff.

    The top has a sample for each region. Since regions name images of the whole batch, a batch stays whole; with
    ``batch_scope: REPLICA`` each rank has one of its own.
    """

    whole_batch_only = "its regions are of any images of the batch"
    within_batch = no_collectives = True
    family = Family.POOLING

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        return bottom != 1

    def regions(self, bottom: Tensor, images: int) -> Regions:
        """Return the second bottom's.

        Raises:
            DataError: a region is of an image that the batch does not have.
        """
        rows = bottom.detach().reshape(-1, 5)
        table = f'the images of "{self.spec.bottom_names[0]}"'
        return row_indices(self.spec, rows[:, 0], 1, images, table), rows[:, 1:]


def check_regions(spec: LayerSpec, bottoms: Sequence[Shape]) -> None:
    """Raise a LayerError unless the bottoms are features and regions."""
    features, regions = bottoms
    if len(features) != 4:
        raise spec.error(f"needs features (N, channels, H, W): {show_bottoms(spec, bottoms)}", "bottom")
    if not regions or count(regions[1:]) != 5:
        raise spec.error(f"needs regions (R, 5), image, x1, y1, x2 and y2: {show_bottoms(spec, bottoms)}", "bottom", 1)


def bins_of(spec: LayerSpec, field: str) -> tuple[int, int]:
    """``pooled_h`` and ``pooled_w`` of the message ``field``; a LayerError if one is missing or 0."""
    param: Any = getattr(spec.param, field)
    for name in ("pooled_h", "pooled_w"):
        if getattr(param, name) < 1:
            raise spec.error(f"{field} needs pooled_h and pooled_w, each at least 1", field, name)
    return param.pooled_h, param.pooled_w
