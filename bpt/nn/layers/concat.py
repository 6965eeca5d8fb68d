"""Concat, Slice, Split, Silence and Tile: join, cut, copy, drop and repeat blobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers.axes import axis_or_dim, canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer, setting
from bpt.nn.pass_context import PassContext


@LAYERS.register("Concat")
class Concat(Layer):
    """The bottoms joined along ``axis`` (default 1; the old form is ``concat_dim``); their other axes must agree."""

    arity = Arity(bottoms=(1, None))
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = axis_or_dim(spec, bottoms[0], "concat_param", "concat_dim")
        before, after = bottoms[0][:axis], bottoms[0][axis + 1 :]
        for index, shape in enumerate(bottoms):
            if len(shape) != len(bottoms[0]) or shape[:axis] != before or shape[axis + 1 :] != after:
                raise spec.error(
                    f"bottoms must agree in all axes but axis {axis}: {show_bottoms(spec, bottoms)}", "bottom", index
                )
        return LayerShapes(((*before, sum(shape[axis] for shape in bottoms), *after),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = axis_or_dim(spec, bottoms[0], "concat_param", "concat_dim")
        along_samples = "it joins blobs along axis 0, the samples" if axis == 0 and len(bottoms) > 1 else ""
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.concat_param
        self.axis = param.concat_dim if param.HasField("concat_dim") else param.axis
        self.top_is_free = len(spec.bottoms) > 1

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] if len(bottoms) == 1 else torch.cat(bottoms, self.axis)


@LAYERS.register("Slice")
class Slice(Layer):
    """Parts of the bottom along ``axis`` (default 1; once ``slice_dim``), cut at each ``slice_point`` or equally."""

    arity = Arity(tops=(1, None))
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = axis_or_dim(spec, bottoms[0], "slice_param", "slice_dim")
        _check_points(spec, bottoms[0], axis)
        borders = _borders(bottoms[0][axis], spec.param.slice_param.slice_point, len(spec.tops))
        before, after = bottoms[0][:axis], bottoms[0][axis + 1 :]
        return LayerShapes(tuple((*before, end - start, *after) for start, end in pairwise(borders)))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = axis_or_dim(spec, bottoms[0], "slice_param", "slice_dim")
        along_samples = "it cuts along axis 0, the samples" if axis == 0 and len(spec.tops) > 1 else ""
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.slice_param
        self.axis = param.slice_dim if param.HasField("slice_dim") else param.axis
        self.points = list(param.slice_point)
        self.parts = len(spec.tops)

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        x = bottoms[0]
        borders = _borders(x.shape[self.axis], self.points, self.parts)
        # An in-place layer may not change the results of torch.split.
        return tuple(x.narrow(self.axis, start, end - start) for start, end in pairwise(borders))


def _borders(extent: int, points: Sequence[int], parts: int) -> list[int]:
    """Return the borders of the parts: one number more than parts."""
    return [0, *(points or [extent // parts * part for part in range(1, parts)]), extent]


def _check_points(spec: LayerSpec, shape: Shape, axis: int) -> None:
    """Raise a LayerError unless ``axis`` of a bottom of ``shape`` can be cut as the text says."""
    points = list(spec.param.slice_param.slice_point)
    tops, extent = len(spec.tops), shape[axis]
    if not points and extent % tops:
        raise spec.error(
            f"{tops} tops cannot share axis {axis} of bottom {show_bottoms(spec, [shape])} equally; give slice_points",
            "slice_param",
        )
    if points and len(points) != tops - 1:
        raise spec.error(
            f"needs one slice_point fewer than tops ({tops - 1}), not {len(points)}", "slice_param", "slice_point"
        )
    if points and any(start >= end for start, end in pairwise([0, *points, extent])):
        raise spec.error(
            f"slice_points {points} must ascend between 0 and {extent}, axis {axis} of bottom "
            f"{show_bottoms(spec, [shape])}",
            "slice_param",
            "slice_point",
        )


@LAYERS.register("Split")
class Split(Layer):
    """A copy of the bottom for each top; the bottom's diff is the sum of theirs. ``insert_splits`` adds this layer."""

    arity = Arity(tops=(1, None))
    sample_independent = is_view = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0],) * len(spec.tops))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.copies = len(spec.tops)

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        # Views share the data, but each is a separate tensor with its own diff. ``view_as`` of a single
        # image loses the stride of axis 0, by which kernels recognise channels-last.
        if is_compiling_or_tracing():
            return tuple(bottoms[0].view_as(bottoms[0]) for _ in range(self.copies))
        if not torch.is_grad_enabled():
            return (bottoms[0],) * self.copies
        return tuple(bottoms[0][...] for _ in range(self.copies))


@LAYERS.register("Silence")
class Silence(Layer):
    """A layer of any number of bottoms without tops; the diff of the bottoms is 0."""

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(1, None), tops=(0, 0))
    no_collectives = True
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes(())

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        return ()


FIELD = "tile_param"


@LAYERS.register("Tile")
class Tile(Layer):
    """The bottom repeated ``tiles`` times along ``axis`` (default 1)."""

    sample_independent = True
    computes = False
    family = Family.JOIN
    axis = setting(int, "tile_param.axis")
    tiles = setting(int, "tile_param.tiles")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, shape = spec.param.tile_param, bottoms[0]
        axis = canonical_axis(spec, param.axis, shape, FIELD, "axis")
        if param.tiles < 1:
            raise spec.error(f"needs tiles, at least 1, not {param.tiles}", FIELD, "tiles")
        return LayerShapes(((*shape[:axis], param.tiles * shape[axis], *shape[axis + 1 :]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param = spec.param.tile_param
        along_samples = canonical_axis(spec, param.axis, bottoms[0], FIELD, "axis") == 0 and param.tiles > 1
        return "it repeats the batch along axis 0, the samples" if along_samples else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.tiles == 1:
            return x
        axis = self.axis % x.dim()
        return x.repeat(*(1,) * axis, self.tiles, *(1,) * (x.dim() - axis - 1))
