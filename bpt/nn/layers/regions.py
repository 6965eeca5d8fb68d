"""The base of layers that read regions of images (Caffe's forks: "ROI", a region of interest)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import Family, Layer
from bpt.nn.layers.labels import row_indices

Regions = tuple[Tensor, Tensor]
"""The image of each region, ``(R,)``, and its corners x1, y1, x2, y2 in pixels of that image, ``(R, 4)``."""


class RegionLayer(Layer):
    """A layer that reads features and regions, and makes one sample of its top for each region.

    Bottoms: features ``(N, channels, H, W)``, and regions ``(R, 5)`` of image, x1, y1, x2, y2, which get no diff.
    Regions name images of the whole batch, so a batch stays whole. With ``batch_scope: REPLICA`` each rank has a batch
    of its own.
    """

    arity = Arity(bottoms=(2, 2))
    whole_batch_only = "its regions are of any images of the batch"
    within_batch = no_collectives = True
    family = Family.POOLING
    settings: ClassVar[str]
    bottoms_without_diff = (1,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        """Return the shape ``(R, channels, pooled_h, pooled_w)`` of the top."""
        check_regions(spec, bottoms)
        return LayerShapes(((bottoms[1][0], bottoms[0][1], *cls.bins_of(spec)),))

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        param = getattr(layer, cls.settings)
        return (f"{param.pooled_h}×{param.pooled_w}",)

    @classmethod
    def bins_of(cls, spec: LayerSpec) -> tuple[int, int]:
        """Return ``pooled_h`` and ``pooled_w`` of the layer's settings.

        Raises:
            LayerError: one of them is missing or 0.
        """
        param: Any = getattr(spec.param, cls.settings)
        for name in ("pooled_h", "pooled_w"):
            if getattr(param, name) < 1:
                raise spec.error(f"{cls.settings} needs pooled_h and pooled_w, each at least 1", cls.settings, name)
        return param.pooled_h, param.pooled_w

    def regions(self, bottom: Tensor, images: int) -> Regions:
        """Return the images ``(R,)`` and the corners ``(R, 4)`` of the regions in the second bottom.

        Raises:
            DataError: a region names an image that the batch does not have.
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
