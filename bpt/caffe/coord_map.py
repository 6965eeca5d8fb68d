"""``caffe.coord_map``: where a point of one blob lies in another, through the layers between them; and Crop by that.

A map takes a spatial coordinate ``x`` of a top to ``a · x + b`` of a bottom: of a convolution ``a`` is its stride, and
``b`` half of its kernel less its padding. The axes from ``axis`` on are spatial; ``a`` and ``b`` are numbers, or arrays
of one for each of them. Maps are composed along the way up from either blob to what both are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpt.arguments import checked_kind
from bpt.errors import UserError
from bpt.layers import LAYERS
from bpt.netspec import L, Top
from bpt.netspec.function import Function
from bpt.proto import bpt_pb2 as pb

# Layers that leave each point where it is, beside those whose class says so (``elementwise``).
PASS_THROUGH = frozenset({"BatchNorm", "Bias", "Eltwise", "LRN", "MVN", "PReLU", "Scale", "Split"})

Numbers = npt.NDArray[np.float64]


class UndefinedMapException(UserError, RuntimeError):  # noqa: N818  pycaffe's name
    """There is no map: a layer on the way has none, or the blobs have nothing in common."""


class AxisMismatchException(UserError, RuntimeError):  # noqa: N818
    """Two layers on the way mean different axes."""


class CropError(UserError, AssertionError):
    """A blob cannot be cropped to another: it has another scale, or begins inside of it."""


class Map(NamedTuple):
    """``a · x + b``; ``axis`` is the first spatial one, ``None`` where any will do."""

    axis: int | None
    a: Any
    b: Any


IDENTITY = Map(None, 1.0, 0.0)


def coord_map(fn: Function) -> Map:
    """The map of a layer, from its top to its bottom.

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
        return Map(
            crop.axis - 1, 1.0, _plain(list(crop.offset) or [0])
        )  # of the axes before it, channels are not spatial
    if kind in PASS_THROUGH or LAYERS[kind].elementwise:
        return IDENTITY
    raise UndefinedMapException(f"{kind} has no map of coordinates")


def compose(first: Map, second: Map) -> Map:
    """``second`` after ``first``."""
    axes = {each.axis for each in (first, second) if each.axis is not None}
    if len(axes) > 1:
        raise AxisMismatchException(f"layers on the way have different first spatial axes: {sorted(axes)}")
    return Map(axes.pop() if axes else None, second.a * first.a, second.a * first.b + second.b)


def inverse(given: Map) -> Map:
    """From the bottom to the top."""
    return Map(given.axis, 1 / given.a, -given.b / given.a)


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map from coordinates of one top to those of another: its axis, its scale and its offset.

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
    """A Crop layer that cuts ``top_from`` to the place and the size of ``top_to``.

    Raises:
        CropError: it cannot be cut to that.
        UndefinedMapException: nothing tells where one lies in the other.
    """
    axis, a, b = coord_map_from_to(top_from, top_to)
    if not np.all(np.equal(a, 1)):
        raise CropError(f"one pixel to crop is {a} pixels of what it is cropped to; both must have one scale")
    if not np.all(np.less_equal(b, 0)):
        raise CropError(f"what is cropped begins {b} pixels inside of what it is cropped to")
    if not np.all(np.equal(np.round(b), b)):
        raise CropError(f"the offset {b} is not a whole number of pixels")
    offset = [int(place) for place in -np.atleast_1d(np.round(b))]
    made: Top = L.Crop(top_from, top_to, crop_param={"axis": (1 if axis is None else axis) + 1, "offset": offset})
    return made


def _maps_up(top: Top) -> dict[Top, Map]:
    """From ``top`` to itself and to all that lies above it, as far as there are maps, the nearest first."""
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
    """First spatial axis, stride, kernel with its holes, and padding of a layer that slides a window."""
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
    """What a text says of stride, pad or kernel: one number for all axes, or one for each."""
    if param.HasField(f"{name}_h") or param.HasField(f"{name}_w"):
        return _plain([getattr(param, f"{name}_h"), getattr(param, f"{name}_w")])
    given = getattr(param, "kernel_size" if name == "kernel" else name)
    return _plain([given] if isinstance(given, int) else list(given) or [default])


def _plain(numbers: Sequence[int]) -> float | Numbers:
    """A number if there is one, else an array."""
    return float(numbers[0]) if len(numbers) == 1 else np.array(numbers, np.float64)
