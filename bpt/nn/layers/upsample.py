"""Upsample: repeats pixels (of YOLO's nets), or puts values back to the places that a max pooling recorded (SegNet)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.base.errors import RunError
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "upsample_param"
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
                    raise spec.error(f"{field} goes with a mask, the second bottom", FIELD, field)
            if not (param.HasField("scale") or param.HasField("scale_h")):
                raise spec.error("needs scale with one bottom: Caffe's forks do not agree on a default", FIELD)
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
        places = places + 1  # element 0 takes what is for no place, and is cut off
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
            raise spec.error(f"{given[0]} is given alone; {pair[0]} and {pair[1]} go together", FIELD, given[0])
    for field in ("scale", "scale_h", "scale_w", "upsample_h", "upsample_w"):
        if param.HasField(field) and not getattr(param, field):
            raise spec.error(f"{field} must be at least 1, not 0", FIELD, field)
        if axes != 2 and param.HasField(field) and field != "scale":
            raise spec.error(f"{field} is for 2 spatial axes, the bottom has {axes}", FIELD, field)
    if param.HasField("scale") and param.HasField("scale_h"):
        raise spec.error("give scale, or scale_h and scale_w, not both", FIELD, "scale_h")
    for field, scale in (("pad_out_h", param.scale_h or param.scale), ("pad_out_w", param.scale_w or param.scale)):
        if not getattr(param, field):
            continue
        if param.upsample_h:
            raise spec.error(f"{field} goes with a scale, not with upsample_h and upsample_w", FIELD, field)
        if scale != 2 or axes != 2:
            raise spec.error(f"{field} goes with a scale of 2 and 2 spatial axes", FIELD, field)


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
