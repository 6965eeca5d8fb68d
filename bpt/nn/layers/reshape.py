"""Reshape and Flatten: the same elements, in the same order, in another shape."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer, setting
from bpt.nn.pass_context import PassContext

FIELD = "reshape_param"
COPY, INFER = 0, -1


@LAYERS.register("Reshape")
class Reshape(Layer):
    """The bottom with ``num_axes`` axes from ``axis`` on (default: all) replaced by the dims of ``shape``.

    A dim of 0 copies the bottom's axis at the same place. A dim of -1, allowed once, takes what remains. A negative
    ``axis`` counts from behind the last one, -1. ``num_axes: 0`` inserts axes.

    With many ranks the number of samples (axis 0) must not change. A first dim that gives this number is read as 0,
    since a rank has fewer.
    """

    within_batch = is_view = no_collectives = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.reshape_param
        self.dims, self.axis, self.num_axes = tuple(param.shape.dim), param.axis, param.num_axes

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, bottom = spec.param.reshape_param, bottoms[0]
        start, end = _range(spec, bottom)
        dims = tuple(param.shape.dim)
        for index, dim in enumerate(dims):
            path = (FIELD, "shape", "dim", index)
            if dim < INFER:
                raise spec.error(f"dim must be at least -1, not {dim}", *path)
            if dim == INFER and INFER in dims[:index]:
                raise spec.error("only one dim may be -1: what remains", *path)
            if dim == COPY and start + index >= len(bottom):
                raise spec.error(
                    f"dim 0 has no axis {start + index} to copy from bottom {show_bottoms(spec, bottoms)}", *path
                )
        top = _top_shape(bottom, dims, start, end)
        if count(top) != count(bottom):
            written = tuple(_written(bottom, dims, start, end))
            if not dims:
                remedy = "give the dims in shape"
            elif INFER in dims:
                remedy = f"the other dims must divide {count(bottom)}"
            else:
                remedy = f"its dims multiply to {count(written)}; a dim of -1 is what remains, 0 copies the bottom's"
            raise spec.error(
                f"bottom {show_bottoms(spec, bottoms)} of {count(bottom)} elements cannot have "
                f"shape {written}; {remedy}",
                FIELD,
                "shape",
            )
        return LayerShapes((top,))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        bottom, top = bottoms[0], cls.infer(spec, bottoms).tops[0]
        start, end = _range(spec, bottom)
        if bottom and start == 0 and top != bottom and (end == 0 or top[:1] != bottom[:1]):
            return f"it makes {top} of {bottom}, which changes axis 0, the samples"
        return super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        start = self.axis if self.axis >= 0 else self.axis + x.dim() + 1
        end = x.dim() if self.num_axes == -1 else start + self.num_axes
        dims = self.dims
        # A single process may pass more samples than the text says; then -1 includes them, as in Caffe.
        fits = not self.context.is_divided and INFER in dims
        if start == 0 < end and dims[:1] == (self.samples,) and not fits:
            dims = (COPY, *dims[1:])
        return x.reshape(_top_shape(tuple(x.shape), dims, start, end))


def _range(spec: LayerSpec, bottom: Shape) -> tuple[int, int]:
    """Return the range ``[start, end)`` of the bottom's axes that are replaced."""
    param, axes = spec.param.reshape_param, len(bottom)
    if not -axes - 1 <= param.axis <= axes:
        raise spec.error(
            f"axis {param.axis} is outside [{-axes - 1}, {axes}], the places before, between and after the axes of "
            f"bottom {show_bottoms(spec, [bottom])}",
            FIELD,
            "axis",
        )
    if param.num_axes < -1:
        raise spec.error(
            f"num_axes must be at least 0, or -1 for all from axis on; not {param.num_axes}", FIELD, "num_axes"
        )
    start = param.axis % (axes + 1)
    end = axes if param.num_axes == -1 else start + param.num_axes
    if end > axes:
        raise spec.error(
            f"num_axes {param.num_axes} from axis {start} on reaches over the end of bottom "
            f"{show_bottoms(spec, [bottom])}",
            FIELD,
            "num_axes",
        )
    return start, end


def _written(bottom: Shape, dims: Sequence[int], start: int, end: int) -> list[int]:
    """Return the top's shape with dims of 0 copied; -1 remains."""
    copied = [bottom[start + index] if dim == COPY else dim for index, dim in enumerate(dims)]
    return [*bottom[:start], *copied, *bottom[end:]]


def _top_shape(bottom: Shape, dims: Sequence[int], start: int, end: int) -> Shape:
    top = _written(bottom, dims, start, end)
    if INFER in dims:
        # Copied axes are omitted on both sides: one of them may be 0, if there are no samples.
        copies = {start + index for index, dim in enumerate(dims) if dim == COPY and start + index < end}
        given = count([top[start + i] for i, dim in enumerate(dims) if dim != INFER and start + i not in copies])
        replaced = count([bottom[axis] for axis in range(start, end) if axis not in copies])
        top[start + list(dims).index(INFER)] = replaced // max(given, 1)
    return tuple(top)


@LAYERS.register("Flatten")
class Flatten(Layer):
    """The bottom with the axes from ``axis`` (default 1) to ``end_axis`` (default the last), both included, joined."""

    within_batch = sample_independent = is_view = True
    computes = False
    family = Family.JOIN
    axis = setting(int, "flatten_param.axis")
    end_axis = setting(int, "flatten_param.end_axis")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, shape = spec.param.flatten_param, bottoms[0]
        first = canonical_axis(spec, param.axis, shape, "flatten_param", "axis")
        last = canonical_axis(spec, param.end_axis, shape, "flatten_param", "end_axis")
        if last < first:
            raise spec.error(
                f"end_axis {param.end_axis} is before axis {param.axis} of bottom {show_bottoms(spec, bottoms)}",
                "flatten_param",
                "end_axis",
            )
        return LayerShapes(((*shape[:first], count(shape[first : last + 1]), *shape[last + 1 :]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param, shape = spec.param.flatten_param, bottoms[0]
        first = canonical_axis(spec, param.axis, shape, "flatten_param", "axis")
        last = canonical_axis(spec, param.end_axis, shape, "flatten_param", "end_axis")
        return "it makes one axis of the samples (axis 0) and others" if first == 0 < last else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0].flatten(self.axis, self.end_axis)
