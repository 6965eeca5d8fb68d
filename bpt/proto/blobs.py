"""Blobs of files and NumPy arrays, without a Python loop over their numbers.

protobuf hands out a list of floats one by one, which takes minutes for a large net. Serialised, the same list
is a run of little-endian floats: reading that run, and writing it, takes about as long as copying it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bpt.errors import BptError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import LENGTH, outline, write_varint

FloatArray = NDArray[np.float32]
STORED = np.dtype(np.float32).itemsize  # bytes of a number in files that are written, whatever a run computes in

_OLD_DIMENSIONS = ("num", "channels", "height", "width")
_OLD_AXES = len(_OLD_DIMENSIONS)
_LARGEST = 2**31 - 1  # bytes that a message of protobuf can hold


def blob_shape(blob: pb.BlobProto) -> tuple[int, ...]:
    """The dimensions of ``blob``. If it has any of the old fields num, channels, height and width, they are
    it, as in Caffe: always four, those that are not set 0. No dimensions at all is a single number.

    Raises BptError if a dimension is negative.
    """
    shape: tuple[int, ...] = tuple(blob.shape.dim)
    if is_legacy(blob):
        shape = (blob.num, blob.channels, blob.height, blob.width)
    if any(dim < 0 for dim in shape):
        raise BptError(f"a blob has the shape {_show(shape)}, with a negative dimension")
    return shape


def is_legacy(blob: pb.BlobProto) -> bool:
    """Whether ``blob`` is from the time when every blob had four axes: its shape stands in fields of that time."""
    return any(map(blob.HasField, _OLD_DIMENSIONS))


def fits(stored: tuple[int, ...], wanted: tuple[int, ...], legacy: bool) -> bool:
    """Whether a blob of the shape ``wanted`` can take the values of a ``stored`` one (Caffe: ``Blob::ShapeEquals``)."""
    if legacy:
        return len(wanted) <= _OLD_AXES and stored == (1,) * (_OLD_AXES - len(wanted)) + wanted
    return stored == wanted


def blob_to_array(blob: pb.BlobProto) -> FloatArray:
    """The values of ``blob``, in its shape, as a new float32 array. Values in double precision are rounded.

    Raises BptError if their number does not match the shape.
    """
    return _values(blob, "double_data" if blob.double_data else "data")


def array_to_blob(array: ArrayLike, diff: ArrayLike | None = None) -> pb.BlobProto:
    """A BlobProto with the values of ``array``, its shape and, if given, the gradients ``diff``, in float32.

    Raises BptError if ``diff`` has another shape or the blob would be larger than protobuf allows (2 GB).
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
    try:
        with np.errstate(over="ignore"):  # of doubles
            return values.astype(np.float32).reshape(shape)
    except ValueError:  # too many dimensions, or some too large beside one that is 0
        raise BptError(f"a blob has the shape {_show(shape)}, which no array can have") from None


def _packed(name: str, values: FloatArray) -> bytes:
    """The serialised form of a packed list of floats."""
    if not values.size:
        return b""
    number = pb.BlobProto.DESCRIPTOR.fields_by_name[name].number
    return write_varint(number << 3 | LENGTH) + write_varint(values.nbytes) + values.tobytes()


def _show(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) if shape else "()"
