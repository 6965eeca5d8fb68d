"""``caffe.coord_map``: maps from the coordinates of one blob to those of another, and Crop layers made from them.

A map takes a spatial coordinate ``x`` of a top to ``a · x + b`` of a bottom. For a convolution, ``a`` is the stride
and ``b`` is ``(kernel - 1) / 2 - pad``. The axes after ``axis``, the channel axis, are spatial. ``a`` and ``b`` are
numbers, or arrays with one number for each spatial axis. The map between two blobs is composed along the layers from
each of them up to a blob that both are computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpt.apps.arguments import checked_kind
from bpt.base.errors import UserError
from bpt.caffe.netspec import L, Top
from bpt.caffe.netspec.function import Function
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS

# Layers that keep each point in its place, besides the types that are ``elementwise``.
PASS_THROUGH = frozenset({"BatchNorm", "Bias", "Eltwise", "LRN", "MVN", "PReLU", "Scale", "Split"})

Numbers = npt.NDArray[np.float64]


class UndefinedMapException(UserError, RuntimeError):  # noqa: N818  pycaffe's name
    """No map exists: a layer between the blobs has none, or no blob is an ancestor of both."""


class AxisMismatchException(UserError, RuntimeError):  # noqa: N818
    """Two layers between the blobs have different channel axes."""


class CropError(UserError, AssertionError):
    """A blob cannot be cropped to another: the scales differ, or it begins inside of the other."""


class Map(NamedTuple):
    """The map ``a · x + b``; ``axis`` is the axis before the spatial ones, or ``None`` if the map fits any axis."""

    axis: int | None
    a: Any
    b: Any


IDENTITY = Map(None, 1.0, 0.0)


def coord_map(fn: Function) -> Map:
    """Return the map of a layer, from its top to its bottom.

    Raises:
        UndefinedMapException: it has none.
    """
    kind = checked_kind(fn, Function, "coord_map: what is given").type_name
    if kind in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = _window(fn)
        return Map(axis, stride, (kernel - 1) / 2 - pad)
    if kind == "Deconvolution":
        axis, stride, kernel, pad = _window(fn)
        return Map(axis, 1 / stride, (pad - (kernel - 1) / 2) / stride)
    if kind == "Crop":
        crop = fn.param.crop_param
        # Crop's axis is the first spatial axis, and a map names the channel axis before it.
        return Map(crop.axis - 1, 1.0, _plain(list(crop.offset) or [0]))
    if kind in PASS_THROUGH or LAYERS[kind].elementwise:
        return IDENTITY
    raise UndefinedMapException(f"{kind} has no map of coordinates")


def compose(first: Map, second: Map) -> Map:
    """Return the map that applies ``first`` and then ``second``."""
    axes = {each.axis for each in (first, second) if each.axis is not None}
    if len(axes) > 1:
        raise AxisMismatchException(f"layers between the blobs have different channel axes: {sorted(axes)}")
    return Map(axes.pop() if axes else None, second.a * first.a, second.a * first.b + second.b)


def inverse(given: Map) -> Map:
    """Return the map in the opposite direction, from the bottom to the top."""
    return Map(given.axis, 1 / given.a, -given.b / given.a)


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """Return the map from coordinates of one top to those of another: its axis, its scale and its offset.

    Raises:
        UndefinedMapException: no layers with maps connect them.
    """
    for top in (top_from, top_to):
        checked_kind(top, Top, "coord_map: what is given")
    starts, ends = _maps_up(top_from), _maps_up(top_to)
    for top, start in starts.items():
        if top in ends:
            return compose(start, inverse(ends[top]))
    raise UndefinedMapException("the tops are not connected by layers that have a map of coordinates")


def crop(top_from: Top, top_to: Top) -> Top:
    """Return a Crop layer that cuts ``top_from`` to the place and the size of ``top_to``.

    Raises:
        CropError: the scales differ, or the offset is negative or not a whole number.
        UndefinedMapException: no layers with maps connect them.
    """
    axis, a, b = coord_map_from_to(top_from, top_to)
    if not np.all(np.equal(a, 1)):
        raise CropError(f"one pixel of the cropped blob is {a} pixels of the other; both must have the same scale")
    if not np.all(np.less_equal(b, 0)):
        raise CropError(f"the cropped blob begins {b} pixels inside of the other; it must begin at or before it")
    if not np.all(np.equal(np.round(b), b)):
        raise CropError(f"the offset {b} is not a whole number of pixels")
    offset = [int(place) for place in -np.atleast_1d(np.round(b))]
    made: Top = L.Crop(top_from, top_to, crop_param={"axis": (1 if axis is None else axis) + 1, "offset": offset})
    return made


def _maps_up(top: Top) -> dict[Top, Map]:
    """Return the maps from ``top`` to itself and to the blobs it is computed from, the nearest first.

    The search ends at layers without a map.
    """
    found = {top: IDENTITY}
    waiting = [top]
    while waiting:
        current = waiting.pop(0)
        bottoms = current.fn.inputs[:1] if current.fn.type_name == "Crop" else current.fn.inputs
        if not bottoms:
            continue
        try:
            further = compose(found[current], coord_map(current.fn))
        except UndefinedMapException:
            continue
        for bottom in bottoms:
            if bottom not in found:
                found[bottom] = further
                waiting.append(bottom)
    return found


def _window(fn: Function) -> tuple[int, Any, Any, Any]:
    """Return channel axis, stride, dilated kernel size and padding of a layer with a sliding window."""
    if fn.type_name == "Pooling":
        pooling = fn.param.pooling_param
        if pooling.global_pooling:
            raise UndefinedMapException("global pooling has no map of coordinates")
        return 1, _sizes(pooling, "stride", 1), _sizes(pooling, "kernel", 1), _sizes(pooling, "pad", 0)
    window = fn.param.convolution_param
    holes = _plain(list(window.dilation) or [1])
    kernel = (_sizes(window, "kernel", 1) - 1) * holes + 1
    return window.axis, _sizes(window, "stride", 1), kernel, _sizes(window, "pad", 0)


def _sizes(param: pb.PoolingParameter | pb.ConvolutionParameter, name: str, default: int) -> Any:
    """Return the stride, pad or kernel size in the text: one number for all axes, or one for each."""
    if param.HasField(f"{name}_h") or param.HasField(f"{name}_w"):
        return _plain([getattr(param, f"{name}_h"), getattr(param, f"{name}_w")])
    given = getattr(param, "kernel_size" if name == "kernel" else name)
    return _plain([given] if isinstance(given, int) else list(given) or [default])


def _plain(numbers: Sequence[int]) -> float | Numbers:
    """Return a single number as a float, and several as an array."""
    return float(numbers[0]) if len(numbers) == 1 else np.array(numbers, np.float64)
