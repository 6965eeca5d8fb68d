"""Upsample and Unpooling: enlarge planes by repeating elements or by putting them at given places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.base.errors import RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

REMEDIES = {"Upsample": "upsample_h and upsample_w", "Unpooling": "unpool_h and unpool_w"}


@LAYERS.register("Upsample")
class Upsample(Layer):
    """A layer that enlarges planes: bottom ``(N, channels, spatial axes …)`` with 1 to 3 spatial axes.

    With one bottom each element is repeated ``scale`` times on each spatial axis (``scale_h`` and ``scale_w`` times).
    The scale must be given, since the forks of Caffe that have the layer disagree on a default.

    The second bottom, if any, is the mask from a ``MAX`` Pooling's second top. Each element goes to the place in its
    plane that the mask names; all other places are 0. Where windows overlap and several name one place, the last one
    stays, and all of them get its diff (as in SegNet). The mask's diff is 0. Where it is -1 (a window without
    elements), nothing is put. The sizes of the top are ``upsample_h`` and ``upsample_w``, whatever ``scale`` says.
    Otherwise they are the bottom's times ``scale`` (default 2) or ``scale_h`` and ``scale_w``, less 1 under
    ``pad_out_h`` or ``pad_out_w``.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(1, 2))
    sample_independent = True
    family = Family.POOLING

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.unpools = len(spec.bottoms) == 2
        self.size = _Size.read(spec)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.upsample_param
        bottom = bottoms[0]
        if not 3 <= len(bottom) <= 5:
            raise spec.error(f"needs 1 to 3 spatial axes after (N, channels), not shape {bottom}", "bottom")
        if len(bottoms) == 2 and bottoms[1] != bottom:
            raise spec.error(f"the mask must have the shape of the values: {show_bottoms(spec, bottoms)}", "bottom", 1)
        _check_fields(spec, len(bottom) - 2)
        if len(bottoms) == 1:
            for field in ("upsample_h", "upsample_w", "pad_out_h", "pad_out_w"):
                if param.HasField(field):
                    raise spec.error(f"{field} goes with a mask, the second bottom", "upsample_param", field)
            if not (param.HasField("scale") or param.HasField("scale_h")):
                raise spec.error(
                    "needs scale with one bottom: Caffe's forks do not agree on a default", "upsample_param"
                )
        sizes = _Size.read(spec).of_top(bottom[2:])
        if min(sizes) < 1:
            raise spec.error(f"the top would have no elements: {show_bottoms(spec, bottoms)}", "bottom")
        return LayerShapes(((*bottom[:2], *sizes),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(bottoms[0]) if len(bottoms) == 2 else count(tops[0])

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        sizes = self.size.of_top(x.shape[2:])
        if not self.unpools:
            for axis, size in enumerate(sizes, start=2):
                x = x.repeat_interleave(size // x.shape[axis], axis)
            return x
        return unpool(self.spec, x, bottoms[1], sizes)


def unpool(spec: LayerSpec, x: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return ``x`` at the places of planes of ``sizes`` that ``mask``, of its shape, names; 0 elsewhere.

    Raises:
        RunError: the mask names places outside.
    """
    places = mask.detach().flatten(2).long()
    try:
        planes: Tensor = _Unpool.apply(x.flatten(2), places, count(sizes))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise RunError(
            f'layer "{spec.name}": the mask names places beyond a plane of {tuple(sizes)}; '
            f"give the size of what the Pooling read as {REMEDIES[spec.type]}"
        ) from error
    return planes.reshape(*x.shape[:2], *sizes)


class _Unpool(torch.autograd.Function):
    """Values ``(N, channels, elements)`` at ``places`` of planes of ``size``. At a shared place the last one stays."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, places: Tensor, size: int) -> Tensor:
        places = places + 1  # element 0 collects the elements without a place, and is cut off
        ctx.save_for_backward(places)
        order = torch.arange(values.shape[2], device=values.device).expand(values.shape)
        winner = torch.full((*values.shape[:2], size + 1), -1, device=values.device)
        winner = winner.scatter_reduce(2, places, order, "amax")[..., 1:]
        return torch.where(winner < 0, 0, values.gather(2, winner.clamp(min=0)))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_planes: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return functional.pad(d_planes, (1, 0)).gather(2, places), None, None


def _check_fields(spec: LayerSpec, axes: int) -> None:
    param = spec.param.upsample_param
    for stem in ("scale", "upsample"):
        pair = (f"{stem}_h", f"{stem}_w")
        given = [field for field in pair if param.HasField(field)]
        if len(given) == 1:
            raise spec.error(
                f"{given[0]} is given alone; {pair[0]} and {pair[1]} go together", "upsample_param", given[0]
            )
    for field in ("scale", "scale_h", "scale_w", "upsample_h", "upsample_w"):
        if param.HasField(field) and not getattr(param, field):
            raise spec.error(f"{field} must be at least 1, not 0", "upsample_param", field)
        if axes != 2 and param.HasField(field) and field != "scale":
            raise spec.error(f"{field} is for 2 spatial axes, the bottom has {axes}", "upsample_param", field)
    if param.HasField("scale") and param.HasField("scale_h"):
        raise spec.error("give scale, or scale_h and scale_w, not both", "upsample_param", "scale_h")
    for field, scale in (("pad_out_h", param.scale_h or param.scale), ("pad_out_w", param.scale_w or param.scale)):
        if not getattr(param, field):
            continue
        if param.upsample_h:
            raise spec.error(f"{field} goes with a scale, not with upsample_h and upsample_w", "upsample_param", field)
        if scale != 2 or axes != 2:
            raise spec.error(f"{field} goes with a scale of 2 and 2 spatial axes", "upsample_param", field)


@dataclass(frozen=True)
class _Size:
    """The sizes of a top in ``upsample_param``, or the scales, once or once an axis, and the number to subtract."""

    given: tuple[int, ...]
    scale: tuple[int, ...]
    less: tuple[int, int]

    @classmethod
    def read(cls, spec: LayerSpec) -> _Size:
        param = spec.param.upsample_param
        return cls(
            (param.upsample_h, param.upsample_w) if param.upsample_h else (),
            (param.scale_h, param.scale_w) if param.scale_h else (param.scale,),
            (int(param.pad_out_h), int(param.pad_out_w)),
        )

    def of_top(self, bottom: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial sizes of the top for those of a bottom."""
        axes = len(bottom)
        scale = self.scale * axes if len(self.scale) == 1 else self.scale
        less = self.less if axes == 2 else (0,) * axes
        return self.given or tuple(size * by - off for size, by, off in zip(bottom, scale, less, strict=True))


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
            raise spec.error("padding cannot be taken back, as in Caffe: pad must be 0", "unpooling_param")
        kernel = _pair(spec, "kernel_size", "kernel_h", "kernel_w")
        if kernel is None:
            raise spec.error("needs kernel_size, or kernel_h and kernel_w", "unpooling_param")
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
        raise spec.error(f"give {both}, or {height} and {width}", "unpooling_param", given[-1])
    if any(getattr(param, name) < 1 for name in given):
        raise spec.error(f"{given[0]} must be at least 1", "unpooling_param", given[0])
    return (getattr(param, given[0]), getattr(param, given[-1])) if given else None
