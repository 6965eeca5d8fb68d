"""Unpooling: the inverse of a Pooling (of DeconvNet's Caffe)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.upsample import unpool
from bpt.nn.pass_context import PassContext

FIELD = "unpooling_param"
MAX, AVE = pb.UnpoolingParameter.MAX, pb.UnpoolingParameter.AVE


@LAYERS.register("Unpooling")
class Unpooling(Layer):
    """A layer that enlarges planes: bottom ``(N, channels, h, w)``, top ``(N, channels, H, W)``.

    ``unpool: MAX`` puts each element at the place in the plane that the mask names. The mask is the second bottom, the
    second top of a Pooling, and gets no diff. Without a mask, an element goes to the upper left corner of its window.
    All other places are 0. If several elements share a place, the last one stays, and all get its diff. ``TILE`` adds
    each element to its whole window. ``AVE`` first divides it by the window's size. (TILE's diff is the true one; Caffe
    also divides that.)

    Windows have ``kernel_size`` and ``stride``, or both by axis. Padding is refused, as in Caffe. H and W are
    ``unpool_size``, or ``unpool_h`` and ``unpool_w``; by default, the larger of ``(h - 1) · stride + kernel`` and ``h ·
    stride + 1``. (Noh, Hong, Han, *Learning Deconvolution Network for Semantic Segmentation*, 2015, 3.2.1.)
    """

    arity = Arity(bottoms=(1, 2))
    numbers = Autocast.WIDEST
    sample_independent = True
    family = Family.POOLING
    bottoms_without_diff = (1,)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.windows = _Windows.read(spec)
        self.method = spec.param.unpooling_param.unpool

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom, param = bottoms[0], spec.param.unpooling_param
        if len(bottom) != 4 or any(shape != bottom for shape in bottoms):
            raise spec.error(
                f"needs a bottom (N, channels, h, w), and perhaps a mask of its shape: {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        if len(bottoms) == 2 and param.unpool != MAX:
            raise spec.error("a mask, the second bottom, goes with unpool: MAX", "bottom", 1)
        return LayerShapes(((*bottom[:2], *_Windows.read(spec).top_of(bottom[2:])),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(bottoms[0]) if spec.param.unpooling_param.unpool == MAX else count(tops[0])

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        size = self.windows.top_of(x.shape[2:])
        if self.method != MAX:
            return self._spread(x, size)
        if len(bottoms) == 2:
            return unpool(self.spec, x, bottoms[1], size)
        rows, columns = (
            (torch.arange(cells, device=x.device) * stride).clamp_(max=limit - 1)
            for cells, stride, limit in zip(x.shape[2:], self.windows.stride, size, strict=True)
        )
        return unpool(self.spec, x, (rows[:, None] * size[1] + columns).expand_as(x), size)

    def _spread(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """Add each element to its whole window, by one product over rows and one over columns."""
        rows, columns = (
            _covers(cells, kernel, stride, limit, x)
            for cells, kernel, stride, limit in zip(x.shape[2:], *self.windows[:2], size, strict=True)
        )
        if self.method == AVE:
            rows, columns = (cover / cover.sum(1, keepdim=True).clamp(min=1) for cover in (rows, columns))
        return rows.t() @ x @ columns


def _covers(cells: int, kernel: int, stride: int, limit: int, like: Tensor) -> Tensor:
    """Return which of ``limit`` places the window of each cell covers: ``(cells, limit)`` of 0 and 1."""
    start = torch.arange(cells, device=like.device).unsqueeze(1) * stride
    place = torch.arange(limit, device=like.device)
    return ((place >= start) & (place < start + kernel)).to(like.dtype)


class _Windows(NamedTuple):
    """The sizes of the windows, the steps between them and, if the text gives it, the size of the top.

    Each pair is (height, width).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    size: tuple[int, int] | None

    @classmethod
    def read(cls, spec: LayerSpec) -> _Windows:
        """Read the windows from the text; raise a LayerError if a field that Caffe requires is missing."""
        param = spec.param.unpooling_param
        if param.pad or param.pad_h or param.pad_w:
            raise spec.error("padding cannot be taken back, as in Caffe: pad must be 0", FIELD)
        kernel = _pair(spec, "kernel_size", "kernel_h", "kernel_w")
        if kernel is None:
            raise spec.error("needs kernel_size, or kernel_h and kernel_w", FIELD)
        stride = _pair(spec, "stride", "stride_h", "stride_w") or (1, 1)
        return cls(kernel, stride, _pair(spec, "unpool_size", "unpool_h", "unpool_w"))

    def top_of(self, bottom: Sequence[int]) -> tuple[int, int]:
        """Return height and width of the top for height and width of a bottom."""
        if self.size:
            return self.size
        height, width = (
            max((cells - 1) * stride + kernel, cells * stride + 1)
            for cells, kernel, stride in zip(bottom, self.kernel, self.stride, strict=True)
        )
        return height, width


def _pair(spec: LayerSpec, both: str, height: str, width: str) -> tuple[int, int] | None:
    param = spec.param.unpooling_param
    given = [name for name in (both, height, width) if param.HasField(name)]
    if given not in ([], [both], [height, width]):
        raise spec.error(f"give {both}, or {height} and {width}", FIELD, given[-1])
    if any(getattr(param, name) < 1 for name in given):
        raise spec.error(f"{given[0]} must be at least 1", FIELD, given[0])
    return (getattr(param, given[0]), getattr(param, given[-1])) if given else None
