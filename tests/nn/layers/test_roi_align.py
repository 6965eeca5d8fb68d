"""ROIAlign: the three layers of the name, against a recording and against each paper's arithmetic, point by point."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.support.golden_cases import recorded
from tests.support.one_layer import one_layer

PLANES = torch.rand(2, 3, 8, 9, generator=torch.Generator().manual_seed(1))
REGIONS = torch.tensor(
    [[0, 2.3, 3.1, 9.7, 12.2], [1, 4, 4, 4, 4], [1, -6.5, -4.2, 5.1, 20.3], [0, 9, 9, 3, 3], [1, 0, 0, 17, 15]]
)
BINS = (3, 2)


def align(fields: str) -> Tensor:
    body = f'type: "ROIAlign" roi_align_param {{ pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 {fields} }}'
    top: Tensor = one_layer(body, PLANES.shape, REGIONS.shape)(PLANES, REGIONS)
    return top


def between(plane: Tensor, y: float, x: float, beyond: float) -> Tensor:
    """The numbers of a plane (channels, H, W) at a point, 0 if that is farther than ``beyond`` from it."""
    height, width = plane.shape[1:]
    if not (-beyond <= y <= height - 1 + beyond and -beyond <= x <= width - 1 + beyond):
        return torch.zeros(len(plane))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    up = plane[:, top, left] * (1 - x + left) + plane[:, top, right] * (x - left)
    down = plane[:, bottom, left] * (1 - x + left) + plane[:, bottom, right] * (x - left)
    return up * (1 - y + top) + down * (y - top)


@pytest.mark.parametrize("sampling", [2, 3, -1])
def test_mask_rcnns(sampling: int) -> None:
    wanted = torch.zeros(len(REGIONS), 3, *BINS)
    for n, (image, *corners) in enumerate(REGIONS.tolist()):
        x1, y1, x2, y2 = (corner * 0.5 for corner in corners)
        height, width = max(y2 - y1, 1) / BINS[0], max(x2 - x1, 1) / BINS[1]
        rows, columns = (sampling if sampling > 0 else math.ceil(size) for size in (height, width))
        for i in range(BINS[0]):
            for j in range(BINS[1]):
                points = [
                    (y1 + (i + (a + 0.5) / rows) * height, x1 + (j + (b + 0.5) / columns) * width)
                    for a in range(rows)
                    for b in range(columns)
                ]
                numbers = [between(PLANES[int(image)], y, x, 1) for y, x in points]
                wanted[n, :, i, j] = torch.stack(numbers).mean(0)
    torch.testing.assert_close(align(f"sampling_ratio: {sampling}"), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pad", [0, 0.25])
def test_cascade_rcnns(pad: float) -> None:
    wanted = torch.zeros(len(REGIONS), 3, *BINS)
    for n, (image, *corners) in enumerate(REGIONS.tolist()):
        wide, high = (corners[2] - corners[0] + 1) * pad, (corners[3] - corners[1] + 1) * pad
        x1, y1 = (corners[0] - wide) * 0.5 - 0.5, (corners[1] - high) * 0.5 - 0.5
        x2, y2 = (corners[2] + wide) * 0.5 - 0.5, (corners[3] + high) * 0.5 - 0.5
        if x2 <= x1 or y2 <= y1:
            continue
        for i in range(BINS[0]):
            for j in range(BINS[1]):
                points = [
                    between(
                        PLANES[int(image)], y1 + (i + a) * (y2 - y1) / BINS[0], x1 + (j + b) * (x2 - x1) / BINS[1], 0.5
                    )
                    for a in (0, 1)
                    for b in (0, 1)
                ]
                wanted[n, :, i, j] = torch.stack(points).mean(0)
    torch.testing.assert_close(align(f"pad_ratio: {pad}"), wanted, rtol=1e-4, atol=1e-5)


def test_the_recorded_one_but_where_it_read_beyond_its_memory() -> None:
    (case,), arrays = recorded("ROIAlign")
    x, rois, wanted = (torch.from_numpy(arrays[f"00_basic/s0/{key}"]) for key in ("in/x", "in/rois", "top/y"))
    body = case["prototxt"].split('type: "ROIAlign"')[1].split("}\n}")[0]
    field = body[body.index("roi_align_param") :]
    top = one_layer(f'type: "ROIAlign" {field} }}', x.shape, rois.shape)(x, rois)
    # Of the last plane of the batch, whose bins at the border take in a row behind it.
    garbage = wanted < -1e30
    assert garbage.nonzero()[:, :2].tolist() == [[0, 3], [3, 3], [3, 3]]
    torch.testing.assert_close(top[~garbage], wanted[~garbage], rtol=1e-4, atol=1e-5)
