"""ROIPooling and ROIAlign as single operators of a program that ``torch.export`` writes.

Their results depend on the numbers of the regions, which a program cannot express. ONNX has an operator for each. torch
can run such a program where this file is imported.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bpt.nn.kernels.region_kernels import bins_along, max_of_bins, round_away, weighted, weights_along

Bins = tuple[int, int]


def pooled(features: Tensor, images: Tensor, corners: Tensor, bins: Bins, scale: float) -> Tensor:
    """Return the top of a ROIPooling layer for these regions."""
    cells = round_away(corners * scale)
    sizes = (cells[:, 2:] - cells[:, :2] + 1).clamp_(min=1)
    rows = bins_along(cells[:, 1], sizes[:, 1], bins[0], features.shape[2], whole=True)
    columns = bins_along(cells[:, 0], sizes[:, 0], bins[1], features.shape[3], whole=True)
    return max_of_bins(features, images, rows, columns)


def aligned(features: Tensor, images: Tensor, corners: Tensor, bins: Bins, sampling: int) -> Tensor:
    """Return the top of a ROIAlign layer with ``sampling_ratio`` for these regions, given in cells."""
    weights = []
    for axis in (1, 0):  # rows, columns
        start, number, cells = corners[:, axis], bins[1 - axis], features.shape[3 - axis]
        size = (corners[:, axis + 2] - start).clamp(min=1)
        points = (size / number).ceil() if sampling < 1 else torch.full_like(size, sampling)
        each = torch.arange(int(points.max()) if len(points) else 1, device=size.device)
        place = (each + 0.5) / points.unsqueeze(1)  # within a bin, from 0 to 1
        bin_ = torch.arange(number, device=size.device).view(-1, 1) + place.unsqueeze(1)
        factors = weights_along(start.view(-1, 1, 1) + bin_ * (size / number).view(-1, 1, 1), cells, margin=1)
        factors = factors * (each < points.unsqueeze(1))[:, None, :, None]
        weights.append(factors.sum(2) / points.view(-1, 1, 1))
    return weighted(features, images, *weights)


def _pool(features: Tensor, regions: Tensor, height: int, width: int, scale: float) -> Tensor:
    rows = regions.reshape(-1, 5)
    return pooled(features, rows[:, 0].long(), rows[:, 1:], (height, width), scale)


def _align(features: Tensor, regions: Tensor, height: int, width: int, scale: float, sampling: int) -> Tensor:
    rows = regions.reshape(-1, 5)
    return aligned(features, rows[:, 0].long(), rows[:, 1:] * scale, (height, width), sampling)


def _shape_only(features: Tensor, regions: Tensor, height: int, width: int, *numbers: float) -> Tensor:
    return features.new_empty(regions.shape[0], features.shape[1], height, width)


_ARGUMENTS = "Tensor features, Tensor regions, int height, int width, float scale"
_POOL = torch.library.custom_op("bpt::max_roi_pool", _pool, mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
_ALIGN = torch.library.custom_op(
    "bpt::roi_align", _align, mutates_args=(), schema=f"({_ARGUMENTS}, int sampling) -> Tensor"
)
for _operator in (_POOL, _ALIGN):
    _operator.register_fake(_shape_only)

max_roi_pool: Callable[[Tensor, Tensor, int, int, float], Tensor] = _POOL
"""The operator of ROIPooling: ``(R, channels, height, width)`` from features ``(N, channels, H, W)`` and regions."""
roi_align: Callable[[Tensor, Tensor, int, int, float, int], Tensor] = _ALIGN
"""The operator of ROIAlign, like ``max_roi_pool``; the last argument is ``sampling_ratio``."""
