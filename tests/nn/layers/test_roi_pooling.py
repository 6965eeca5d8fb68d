"""ROIPooling and PSROIPooling: the papers' bins, worked out cell by cell; what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from tests.support.one_layer import error_of, gradient_of, one_layer, shapes_of, tops_of

POOL = "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }"
PLANES = torch.rand(2, 3, 9, 7, generator=torch.Generator().manual_seed(1))
# Inside; of one cell; beyond the plane on either side; turned inside out; the whole plane; halves to round.
REGIONS = torch.tensor(
    [[0, 2, 3, 9, 12], [1, 4, 4, 4, 4], [1, -6, -4, 5, 30], [0, 9, 9, 3, 3], [1, 0, 0, 13, 17], [0, 1, 3, 5, 7]]
).float()


def away(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def window(i: int, start: float, size: float, bins: int, limit: int) -> slice:
    first, last = math.floor(i * size / bins + start), math.ceil((i + 1) * size / bins + start)
    return slice(min(max(first, 0), limit), min(max(last, 0), limit))


def largest(planes: Tensor, region: list[float], bins: tuple[int, int], scale: float) -> Tensor:
    image, x1, y1, x2, y2 = int(region[0]), *(away(x * scale) for x in region[1:])
    top = torch.zeros(planes.shape[1], *bins)
    for i in range(bins[0]):
        for j in range(bins[1]):
            rows = window(i, y1, max(y2 - y1 + 1, 1), bins[0], planes.shape[2])
            columns = window(j, x1, max(x2 - x1 + 1, 1), bins[1], planes.shape[3])
            cells = planes[image][:, rows, columns].flatten(1)
            top[:, i, j] = cells.max(1).values if cells.numel() else 0
    return top


def test_roi_pooling_takes_the_largest_of_each_bin() -> None:
    layer = one_layer(f'type: "ROIPooling" {POOL}', PLANES.shape, REGIONS.shape)
    wanted = torch.stack([largest(PLANES, region, (3, 2), 0.5) for region in REGIONS.tolist()])
    assert torch.equal(layer(PLANES, REGIONS), wanted)
    assert (wanted[2] == 0).any(), "a region reaches beyond the plane"


def test_of_equal_numbers_the_first_gets_the_diff() -> None:
    layer = one_layer('type: "ROIPooling" roi_pooling_param { pooled_h: 1 pooled_w: 1 }', (1, 1, 3, 4), (1, 5))
    x = torch.tensor([[0.0, 0, 0, 0], [0, 1, 2, 2], [0, 2, 2, 0]]).view(1, 1, 3, 4).requires_grad_()
    layer(x, torch.tensor([[0.0, 0, 0, 3, 2]])).backward()
    assert gradient_of(x).nonzero().tolist() == [[0, 0, 1, 2]]


def test_bins_are_divided_in_single_precision_as_in_caffe() -> None:
    # 7 · (57 / 7) is 57.000004 in float32, so that the last of 7 bins has a cell more than 57.
    layer = one_layer('type: "ROIPooling" roi_pooling_param { pooled_h: 7 pooled_w: 1 }', (1, 1, 60, 1), (1, 5))
    x = torch.zeros(1, 1, 60, 1)
    x[0, 0, 57] = 1
    assert layer(x, torch.tensor([[0.0, 0, 0, 0, 56]])).flatten().tolist() == [0] * 6 + [1]


def test_psroi_pooling_takes_the_mean_of_each_bin_of_its_own_channel() -> None:
    bins, outputs, scale = 2, 2, 0.5
    planes = torch.rand(2, outputs * bins**2, 9, 7, generator=torch.Generator().manual_seed(2))
    fields = f"group_size: {bins} output_dim: {outputs} spatial_scale: {scale}"
    layer = one_layer(f'type: "PSROIPooling" psroi_pooling_param {{ {fields} }}', planes.shape, REGIONS.shape)
    wanted = torch.zeros(len(REGIONS), outputs, bins, bins)
    for n, region in enumerate(REGIONS.tolist()):
        x1, y1, x2, y2 = (away(x) * scale for x in (region[1], region[2], region[3] + 1, region[4] + 1))
        for d in range(outputs):
            for i in range(bins):
                for j in range(bins):
                    rows = window(i, y1, max(y2 - y1, 0.1), bins, 9)
                    columns = window(j, x1, max(x2 - x1, 0.1), bins, 7)
                    cells = planes[int(region[0]), (d * bins + i) * bins + j, rows, columns]
                    wanted[n, d, i, j] = cells.mean() if cells.numel() else 0
    torch.testing.assert_close(layer(planes, REGIONS), wanted)


def test_no_regions() -> None:
    for body, shape in (
        (f'type: "ROIPooling" {POOL}', (0, 3, 3, 2)),
        ('type: "ROIAlign" roi_align_param { pooled_h: 3 pooled_w: 2 sampling_ratio: 2 }', (0, 3, 3, 2)),
    ):
        layer = one_layer(body, PLANES.shape, (0, 5))
        assert tops_of(layer, PLANES, torch.zeros(0, 5))[0].shape == shape


def test_shapes_and_refusals() -> None:
    assert shapes_of(f'type: "ROIPooling" {POOL}', (2, 3, 9, 7), (6, 5, 1, 1)) == ((6, 3, 3, 2),)
    assert error_of('type: "ROIPooling" roi_pooling_param { pooled_h: 3 }', (1, 2, 4, 4), (2, 5)) == (
        "roi_pooling_param needs pooled_h and pooled_w, each at least 1"
    )
    assert error_of(
        'type: "ROIPooling" roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }', (1, 2, 4, 4), (2, 4)
    ) == ('needs regions (R, 5), image, x1, y1, x2 and y2: "x0" (1, 2, 4, 4) and "x1" (2, 4)')
    layer = one_layer(f'type: "ROIPooling" {POOL}', PLANES.shape, (1, 5))
    with pytest.raises(DataError, match=r'index 2 at position 0 of "x1" is outside \[0, 2\), the images of "x0"'):
        layer(PLANES, torch.tensor([[2.0, 0, 0, 1, 1]]))
    assert "regions are of any images" in layer.mixes_samples(layer.spec, [(2, 3, 9, 7), (2, 5)])
