"""Translate the operators of ``bpt.nn.layers.region_operators`` to ONNX's MaxRoiPool and RoiAlign."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

Table = dict[Callable[..., Any], Callable[..., Any]]


def translations() -> Table:
    """Return the translations for torch's exporter; none if no net has imported the operators."""
    if "bpt.nn.layers.region_operators" not in sys.modules:
        return {}
    import onnxscript  # noqa: PLC0415  an extra

    op: Any = onnxscript.opset18

    def pool(features: Any, regions: Any, height: int, width: int, scale: float) -> Any:
        return op.MaxRoiPool(features, regions, pooled_shape=[height, width], spatial_scale=scale)

    def align(features: Any, regions: Any, height: int, width: int, scale: float, sampling: int) -> Any:
        axis, first, last = (op.Constant(value_ints=[number]) for number in (1, 1, 5))
        images = op.Cast(op.Squeeze(op.Slice(regions, op.Constant(value_ints=[0]), axis, axis), axis), to=7)  # INT64
        return op.RoiAlign(
            features,
            op.Slice(regions, first, last, axis),
            images,
            coordinate_transformation_mode="output_half_pixel",
            output_height=height,
            output_width=width,
            sampling_ratio=max(sampling, 0),
            spatial_scale=scale,
        )

    return {torch.ops.bpt.max_roi_pool.default: pool, torch.ops.bpt.roi_align.default: align}
