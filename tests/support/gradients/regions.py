"""Layers that look at regions of images."""

from __future__ import annotations

import torch
from hypothesis import strategies as some
from torch import Tensor

from tests.support.gradients.cases import Case, body, cases, filled
from tests.support.gradients.strategies import flags
from tests.support.one_layer import Shape


@some.composite
def regions(draw: some.DrawFn, images: int, places: Shape, scale: float) -> Tensor:
    """Rows (image, x1, y1, x2, y2) that lie in planes of ``places``, or reach beyond, or are without extent."""
    rows = []
    for _ in range(draw(some.integers(1, 3))):
        row: list[float] = [draw(some.integers(0, images - 1))]
        ends = []
        for cells in (places[1], places[0]):
            start = draw(some.integers(-1, cells - 1)) + draw(some.sampled_from([0.0, 0.2, 0.3]))
            ends.append((start, start + draw(some.integers(0, cells + 1))))
        rows.append([*row, *(x / scale for x in (ends[0][0], ends[1][0], ends[0][1], ends[1][1]))])
    return torch.tensor(rows, dtype=torch.float64)


@some.composite
def features(draw: some.DrawFn, channels: int) -> Shape:
    return draw(some.integers(1, 2)), channels, draw(some.integers(1, 5)), draw(some.integers(1, 5))


@cases("ROIPooling", "ROIAlign")
def _pooled(draw: some.DrawFn, kind: str) -> Case:
    # All numbers are apart: no bin has two maxima.
    shape = draw(features(draw(some.integers(1, 2))))
    scale = draw(some.sampled_from([1.0, 0.5, 0.0625]))
    fields: dict[str, object] = {
        "pooled_h": draw(some.integers(1, 3)),
        "pooled_w": draw(some.integers(1, 3)),
        "spatial_scale": scale,
    }
    if kind == "ROIAlign":
        more: list[dict[str, object]] = [{}, {"sampling_ratio": 2}, {"sampling_ratio": -1}, {"pad_ratio": 0.25}]
        fields |= draw(some.sampled_from(more))
    field = "roi_align_param" if kind == "ROIAlign" else "roi_pooling_param"
    rows = draw(regions(shape[0], shape[2:], scale))
    return Case(body(kind, field, **fields), (*filled([shape]), rows), constant=(1,))


@cases("PSROIPooling")
def _position_sensitive(draw: some.DrawFn, kind: str) -> Case:
    bins, outputs = draw(some.integers(1, 2)), draw(some.integers(1, 2))
    shape = draw(features(outputs * bins**2))
    scale = draw(some.sampled_from([1.0, 0.5]))
    text = body(kind, "psroi_pooling_param", group_size=bins, output_dim=outputs, spatial_scale=scale)
    return Case(text, (*filled([shape]), draw(regions(shape[0], shape[2:], scale))), constant=(1,))


@cases("Unpooling")
def _unpooling(draw: some.DrawFn, kind: str) -> Case:
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)), draw(some.integers(1, 3)), draw(some.integers(1, 3)))
    # Without a mask each element has a corner of its own: several at one place all get its diff (as in DeconvNet).
    kernel, stride = draw(some.integers(1, 3)), draw(some.integers(1, 3))
    fields: dict[str, object] = {"kernel_size": kernel, "stride": stride}
    sizes = [max((cells - 1) * stride + kernel, cells * stride + 1) for cells in shape[2:]]
    method = draw(some.sampled_from(["MAX", "AVE", "TILE"]))
    if draw(flags):
        sizes = [size + draw(some.integers(0, 2)) for size in sizes]
        fields |= {"unpool_h": sizes[0], "unpool_w": sizes[1]}
    text = body(kind, "unpooling_param", unpool=method, **fields)
    if method != "MAX" or draw(flags):
        return Case(text, filled([shape]))
    generator = torch.Generator().manual_seed(draw(some.integers(0, 99)))
    own, plane = torch.Size(shape[2:]).numel(), torch.Size(sizes).numel()
    rows = [torch.randperm(plane, generator=generator)[:own] for _ in range(shape[0] * shape[1])]
    return Case(text, (*filled([shape]), torch.stack(rows).double().reshape(shape)), constant=(1,))


@cases("Correlation")
def _correlation(draw: some.DrawFn, kind: str) -> Case:
    fields: dict[str, object] = {
        "pad": draw(some.integers(0, 2)),
        "kernel_size": draw(some.sampled_from([1, 3])),
        "max_displacement": draw(some.integers(0, 2)),
        "stride_1": draw(some.integers(1, 2)),
        "stride_2": draw(some.integers(1, 2)),
        "correlation_type": draw(some.sampled_from(["MULTIPLY", "SUBTRACT"])),
    }
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)), draw(some.integers(1, 6)), draw(some.integers(1, 6)))
    return Case(body(kind, "correlation_param", **fields), filled([shape] * 2))


@cases("SpatialTransformer")
def _spatial_transformer(draw: some.DrawFn, kind: str) -> Case:
    # No place is led to the middle of a cell or the edge of its neighbours', where there are kinks.
    shape = draw(features(draw(some.integers(1, 2))))
    fields: dict[str, object] = {"theta_1_2": 0.0123} if draw(flags) else {}
    if draw(flags):
        fields |= {"output_H": draw(some.integers(1, 4)), "output_W": draw(some.integers(1, 4))}
    theta = torch.tensor([0.713, 0.0937, 0.0631, -0.0833, 0.679, 0.0417], dtype=torch.float64)
    if "theta_1_2" in fields:
        theta = theta[[0, 2, 3, 4, 5]]
    theta = theta + 0.01 * torch.arange(shape[0], dtype=torch.float64).unsqueeze(1)
    return Case(body(kind, "st_param", **fields), (*filled([shape]), theta))


@cases("ImResize")
def _im_resize(draw: some.DrawFn, kind: str) -> Case:
    shape = (draw(some.integers(1, 3)), 2, draw(some.integers(4, 6)), draw(some.integers(4, 6)))
    fields: dict[str, float] = draw(
        some.sampled_from(
            [{"factor": 1.5, "scale_gap": 0.4}, {"target_spatial_width": 3, "target_spatial_height": 7, "scale_gap": 0}]
        )
    )
    return Case(body(kind, "imresize_param", **fields), filled([shape]))
