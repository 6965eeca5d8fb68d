"""Boxes: their areas, their overlaps, and their codes relative to prior boxes."""

from __future__ import annotations

import enum

import torch
from torch import Tensor


class BoxCode(enum.Enum):
    """The code of a box relative to its prior box (SSD: ``code_type``)."""

    CORNER = "the differences of the corners"
    CENTER_SIZE = "the difference of the centres in sizes of the prior box, and the logarithms of the ratios of sizes"
    CORNER_SIZE = "the differences of the corners in sizes of the prior box"


def areas(boxes: Tensor) -> Tensor:
    """Return the areas (…) of ``boxes`` (…, 4); 0 for a box with exchanged corners."""
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return width.clamp(min=0) * height.clamp(min=0)


def intersections(ones: Tensor, others: Tensor) -> Tensor:
    """Return the areas of the intersections of ``ones`` (N, 4) with ``others`` (M, 4): (N, M)."""
    upper = torch.maximum(ones[:, None, :2], others[None, :, :2])
    lower = torch.minimum(ones[:, None, 2:], others[None, :, 2:])
    return (lower - upper).clamp_(min=0).prod(2)


def jaccard(ones: Tensor, others: Tensor) -> Tensor:
    """Return the Jaccard overlaps, intersection over union, of ``ones`` (N, 4) with ``others`` (M, 4): (N, M)."""
    common = intersections(ones, others)
    together = areas(ones)[:, None] + areas(others)[None] - common
    return torch.where(common > 0, common / together, 0.0)


def coverage(ones: Tensor, others: Tensor) -> Tensor:
    """Return the fraction of each of ``ones`` (N, 4) that lies in each of ``others`` (M, 4): (N, M)."""
    common = intersections(ones, others)
    return torch.where(common > 0, common / areas(ones)[:, None], 0.0)


def encode(code: BoxCode, boxes: Tensor, priors: Tensor, variances: Tensor | None) -> Tensor:
    """Return the codes of ``boxes`` (…, 4) relative to their prior boxes, in units of ``variances``; all of one shape.

    Args:
        variances: the variances of the prior boxes; ``None``: 1.
    """
    if code is BoxCode.CORNER:
        offsets = boxes - priors
    elif code is BoxCode.CORNER_SIZE:
        offsets = (boxes - priors) / torch.cat((_sizes(priors), _sizes(priors)), -1)
    else:
        prior_size = _sizes(priors)
        offsets = torch.cat(((_centres(boxes) - _centres(priors)) / prior_size, (_sizes(boxes) / prior_size).log()), -1)
    return offsets if variances is None else offsets / variances


def decode(code: BoxCode, offsets: Tensor, priors: Tensor, variances: Tensor | None) -> Tensor:
    """Return the boxes (…, 4) with the codes ``offsets`` (…, 4), the inverse of ``encode``; arguments broadcast."""
    offsets = offsets if variances is None else offsets * variances
    if code is BoxCode.CORNER:
        return priors + offsets
    size = _sizes(priors)
    if code is BoxCode.CORNER_SIZE:
        return priors + offsets * torch.cat((size, size), -1)
    centre = _centres(priors) + offsets[..., :2] * size
    half = offsets[..., 2:].exp() * size / 2
    return torch.cat((centre - half, centre + half), -1)


def _sizes(boxes: Tensor) -> Tensor:
    return boxes[..., 2:] - boxes[..., :2]


def _centres(boxes: Tensor) -> Tensor:
    return (boxes[..., :2] + boxes[..., 2:]) / 2
