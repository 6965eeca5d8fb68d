"""Converts Datum, the record of Caffe's databases, to an image and back."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.image import decode_image
from bpt.data.source import Image
from bpt.graph.layer_spec import shape_text

# Tags of Datum's fields channels, height, width and data, which come first and in this order, and of label.
_TAGS, _LABEL_TAG = b"\x08\x10\x18\x22", 0x28
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
_LARGEST_SHIFT = 28  # shift of the last byte of a number below 2^31


def decode_datum(record: bytes, channels: int | None = None) -> tuple[Image, float]:
    """Return the image (C, H, W) and the label of a serialised Datum.

    The image is uint8 from ``data`` (decoded if it ``holds_image_file``), float32 from ``float_data``. It may be
    read-only.

    Args:
        channels: number of channels to which encoded images are converted, 1 or 3; ``None`` keeps the file's.

    Raises:
        DataError: the record is not a Datum, or its size is not channels × height × width. Caffe would read past its
            end.
    """
    if plain := _decode_plain(record):
        return plain
    try:
        datum = pb.Datum.FromString(record)
    except DecodeError:
        raise DataError("not a Datum, or a damaged one") from None
    if holds_image_file(datum):
        return decode_image(datum.data, channels), datum.label
    shape = (datum.channels, datum.height, datum.width)
    if min(shape) <= 0:
        raise DataError(f"a Datum of channels × height × width = {shape_text(shape)}; each must be at least 1")
    data = datum.data
    values: Image = np.frombuffer(data, np.uint8) if data else np.array(datum.float_data, np.float32)
    if values.size != shape[0] * shape[1] * shape[2]:
        need = shape[0] * shape[1] * shape[2]
        wanted = f"{need} value{'s' * (need != 1)}"
        raise DataError(f"a Datum of channels × height × width = {shape_text(shape)} needs {wanted}, has {values.size}")
    return values.reshape(shape), datum.label


def is_encoded(record: bytes) -> bool:
    """Return whether a record is a Datum that holds an image file."""
    try:
        return _decode_plain(record) is None and holds_image_file(pb.Datum.FromString(record))
    except DecodeError:
        return False


def holds_image_file(datum: pb.Datum) -> bool:
    """Return whether ``data`` is an image file: it is ``encoded``, or is a JPEG or PNG with another size than pixels.

    Some programs of Caffe's forks wrote image files without setting ``encoded``.
    """
    if datum.encoded:
        return True
    return datum.data.startswith(_SIGNATURES) and len(datum.data) != datum.channels * datum.height * datum.width


def _decode_plain(record: bytes) -> tuple[Image, float] | None:
    """Decode a record of raw uint8 with the usual order of fields as ``decode_datum`` does; return ``None`` for others.

    This is faster than protobuf, and it avoids ``malloc_trim``: whenever its messages have freed 10,000 blocks,
    protobuf has the C library return all free memory to the system, and training must get the pages of its blobs again.
    With large batches of small images that cost a fifth of the time.
    """
    at = 0
    numbers = []
    try:
        for tag in _TAGS:
            if record[at] != tag:
                return None
            number, at = _varint(record, at + 1)
            numbers.append(number)
        channels, height, width, size = numbers
        end = at + size
        label = 0
        if end < len(record):
            if record[end] != _LABEL_TAG:
                return None
            label, end = _varint(record, end + 1)
    except (IndexError, ValueError):
        return None
    if end != len(record) or not size or channels * height * width != size or label >= 2**31:
        return None
    return np.frombuffer(record, np.uint8, size, at).reshape(channels, height, width), label


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """Return a number of at most five bytes and its end; raise a ValueError or IndexError if it is longer."""
    number = record[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for shift in range(7, _LARGEST_SHIFT + 1, 7):
        at += 1
        byte = record[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
    raise ValueError("too long")


def encode_datum(image: Image, label: int) -> pb.Datum:
    """Return the Datum of an ``image`` (C, H, W), uint8 as ``data`` or float32 as ``float_data``."""
    channels, height, width = image.shape
    datum = pb.Datum(channels=channels, height=height, width=width, label=label)
    if image.dtype == np.uint8:
        datum.data = image.tobytes()
    else:
        datum.float_data.extend(image.ravel().tolist())
    return datum
