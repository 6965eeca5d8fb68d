"""Blobs of files and NumPy arrays, without a Python loop over their numbers.

protobuf returns a list of floats one by one, which takes minutes for a large net. Serialised, the same list is a run of
little-endian floats. Reading and writing that run takes about as long as copying it.

NVIDIA's Caffe itself stores such a run, ``raw_data``, of numbers of any type, ``raw_data_type``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bpt.base.errors import BptError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import LENGTH, outline, write_varint

FloatArray = NDArray[np.float32]
STORED = np.dtype(np.float32).itemsize  # bytes of a number in written files, in any precision of the run

RAW: dict[int, np.dtype[Any]] = {
    pb.DOUBLE: np.dtype("<f8"),
    pb.FLOAT: np.dtype("<f4"),
    pb.FLOAT16: np.dtype("<f2"),
    pb.INT: np.dtype("<i4"),
    pb.UINT: np.dtype("<u4"),
    pb.BOOL: np.dtype("?"),
}
"""The numbers of ``raw_data``."""

_OLD_DIMENSIONS = ("num", "channels", "height", "width")
_OLD_AXES = len(_OLD_DIMENSIONS)
_SMALL_FOR_HALF = 2.0**-19
_MAX_SHARE_OF_SMALL = 0.01
_LARGEST = 2**31 - 1  # the most bytes of a protobuf message


def blob_shape(blob: pb.BlobProto) -> tuple[int, ...]:
    """Return the dimensions of ``blob``; no dimensions mean a single number.

    If it has any of the old fields num, channels, height and width, they are its dimensions, as in Caffe: always four,
    and 0 where not set.

    Raises:
        BptError: a dimension is negative.
    """
    shape: tuple[int, ...] = tuple(blob.shape.dim)
    if is_legacy(blob):
        shape = (blob.num, blob.channels, blob.height, blob.width)
    if any(dim < 0 for dim in shape):
        raise BptError(f"a blob has the shape {_show(shape)}, with a negative dimension")
    return shape


def is_legacy(blob: pb.BlobProto) -> bool:
    """Return whether ``blob`` has its shape in the old fields for blobs of four axes."""
    return any(map(blob.HasField, _OLD_DIMENSIONS))


def fits(stored: tuple[int, ...], wanted: tuple[int, ...], legacy: bool) -> bool:
    """Return whether a blob of shape ``wanted`` can take a ``stored`` one's values (Caffe: ``Blob::ShapeEquals``)."""
    if legacy:
        return len(wanted) <= _OLD_AXES and stored == (1,) * (_OLD_AXES - len(wanted)) + wanted
    return stored == wanted


def blob_to_array(blob: pb.BlobProto) -> FloatArray:
    """Return the values of ``blob``, in its shape, as a new float32 array; doubles are rounded.

    Raises:
        BptError: the number of values does not match the shape.
    """
    if blob.HasField("raw_data"):
        return _raw_values(blob)
    return _values(blob, "double_data" if blob.double_data else "data")


def array_to_raw_blob(array: ArrayLike, number: int) -> pb.BlobProto:
    """Return a BlobProto as NVIDIA's Caffe writes it: ``raw_data`` of ``number``, FLOAT or FLOAT16.

    Raises:
        BptError: a finite number is beyond the range of FLOAT16.
    """
    values = np.asarray(array, np.float32)
    with np.errstate(over="ignore"):
        stored = values.astype(RAW[number])
    if not np.array_equal(np.isfinite(stored), np.isfinite(values)):
        raise BptError(f"a blob of shape {_show(values.shape)} has numbers beyond 65504, which FLOAT16 cannot hold")
    blob = pb.BlobProto(raw_data=stored.tobytes())
    blob.raw_data_type = number  # type: ignore[assignment]
    if values.shape:
        blob.shape.dim.extend(values.shape)
    return blob


def fits_half(values: FloatArray) -> bool:
    """Return whether FLOAT16 holds ``values``: none is beyond 65504, and the loss of small ones does not matter.

    Below 2^-19 more than half of a number's digits are lost. Such numbers are acceptable beside larger ones, if they
    are few. A vector must have none of them, and a row (the weights of one output) must have others. Zeros are not
    small numbers.
    """
    with np.errstate(over="ignore"):
        if not np.array_equal(np.isfinite(values.astype(np.float16)), np.isfinite(values)):
            return False
    if not values.size:
        return True
    sizes = np.abs(values).reshape(len(values) if values.ndim else 1, -1)
    is_small = (sizes > 0) & (sizes < _SMALL_FOR_HALF)
    if not is_small.any():
        return True
    largest = np.nan_to_num(sizes, nan=np.inf).max(axis=1)
    lost_rows = (largest > 0) & (largest < _SMALL_FOR_HALF)
    return not lost_rows.any() and bool(is_small.sum() <= _MAX_SHARE_OF_SMALL * np.count_nonzero(sizes))


def which_fit_half(blobs: Sequence[FloatArray], kind: str = "") -> list[bool]:
    """Return for each blob of a layer of the type ``kind`` whether it is stored in FLOAT16.

    Mean, variance and factor of a BatchNorm stay together: the factor divides the others. Where the type is unknown,
    the shapes decide.
    """
    fit = [fits_half(values) for values in blobs]
    shapes = [values.shape for values in blobs]
    is_norm = len(shapes) in (3, 5) and len(shapes[0]) == 1 and shapes[0] == shapes[1] and shapes[2] in ((), (1,))
    is_norm = kind == "BatchNorm" or (not kind and is_norm)
    if is_norm and not all(fit[:3]):
        fit[:3] = [False] * len(fit[:3])
    return fit


def array_to_blob(array: ArrayLike, diff: ArrayLike | None = None) -> pb.BlobProto:
    """Return a BlobProto with the values of ``array``, its shape and, if given, the gradients ``diff``, in float32.

    Raises:
        BptError: ``diff`` has another shape, or the blob would be larger than protobuf allows (2 GB).
    """
    values = np.asarray(array, dtype="<f4")
    gradients = None if diff is None else np.asarray(diff, dtype="<f4")
    if gradients is not None and gradients.shape != values.shape:
        raise BptError(f"a blob has shape {_show(values.shape)}, but its diff {_show(gradients.shape)}")
    if values.nbytes * (1 if gradients is None else 2) > _LARGEST:
        raise BptError(f"a blob of shape {_show(values.shape)} is larger than the 2 GB that protobuf can hold")
    content = _packed("data", values)
    if gradients is not None:
        content += _packed("diff", gradients)
    blob = pb.BlobProto.FromString(content)
    if values.shape:
        blob.shape.dim.extend(values.shape)
    return blob


def _raw_values(blob: pb.BlobProto) -> FloatArray:
    shape, kind = blob_shape(blob), RAW[blob.raw_data_type]
    need = math.prod(shape) * kind.itemsize
    if len(blob.raw_data) != need:
        name = pb.Type.Name(blob.raw_data_type)
        raise BptError(f"a blob of shape {_show(shape)} needs {need} bytes of {name}, but has {len(blob.raw_data)}")
    return _as_array(np.frombuffer(blob.raw_data, kind), shape)


def _values(blob: pb.BlobProto, name: str) -> FloatArray:
    number = pb.BlobProto.DESCRIPTOR.fields_by_name[name].number
    shape = blob_shape(blob)
    have, need = len(getattr(blob, name)), math.prod(shape)
    if have != need:
        raise BptError(f"a blob of shape {_show(shape)} needs {need} values, but has {have}")
    stored = "<f8" if name.startswith("double") else "<f4"
    data = blob.SerializeToString()
    values = np.zeros(0, stored)
    for field in outline(data):
        if field.number == number and field.wire_type == LENGTH:
            values = np.frombuffer(data, stored, have, field.start)
    return _as_array(values, shape)


def _as_array(values: NDArray[Any], shape: tuple[int, ...]) -> FloatArray:
    try:
        with np.errstate(over="ignore"):  # doubles may overflow
            return values.astype(np.float32).reshape(shape)
    except ValueError:  # too many dimensions, or too large ones together with a 0
        raise BptError(f"a blob has the shape {_show(shape)}, which no array can have") from None


def _packed(name: str, values: FloatArray) -> bytes:
    """Return the serialised form of a packed list of floats."""
    if not values.size:
        return b""
    number = pb.BlobProto.DESCRIPTOR.fields_by_name[name].number
    return write_varint(number << 3 | LENGTH) + write_varint(values.nbytes) + values.tobytes()


def _show(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) if shape else "()"
