"""Axes and shapes of bottoms: how a text names them, and how messages show them."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.graph.layer_spec import LayerSpec, Shape


def show_bottoms(spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
    """Return names and shapes of the bottoms for a message: ``"ip" (20, 10) and "label" (20,)``."""
    return " and ".join(f'"{name}" {shape}' for name, shape in zip(spec.bottom_names, bottoms, strict=False))


def canonical_axis(spec: LayerSpec, axis: int, shape: Shape, *path: str) -> int:
    """Return ``axis`` of the first bottom, counted from 0; a negative one counts from the last.

    Args:
        shape: the first bottom's.
        path: the field that names the axis, for the error: ``"softmax_param", "axis"``.

    Raises:
        LayerError: the bottom has no such axis.
    """
    axes = len(shape)
    if not -axes <= axis < axes:
        raise spec.error(
            f"{path[-1]} {axis} is outside [{-axes}, {axes}), the axes of bottom {show_bottoms(spec, [shape])}", *path
        )
    return axis % axes


def axis_or_dim(spec: LayerSpec, shape: Shape, group: str, old: str) -> int:
    """Return the axis that ``group { axis }`` or its old form ``group { <old> }`` names.

    Raises:
        LayerError: both are given, or the first bottom (of ``shape``) has no such axis.
    """
    param = getattr(spec.param, group)
    if param.HasField("axis") and param.HasField(old):
        raise spec.error(f"give axis or {old} (its old form), not both", group, old)
    field = old if param.HasField(old) else "axis"
    return canonical_axis(spec, getattr(param, field), shape, group, field)
