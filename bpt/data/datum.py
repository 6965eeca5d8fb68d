"""Datum, the record of Caffe's databases, to an image and back."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from bpt.data.image import decode_image
from bpt.data.source import Image
from bpt.errors import DataError
from bpt.proto import bpt_pb2 as pb


def decode_datum(record: bytes, channels: int | None = None) -> tuple[Image, float]:
    """The image (C, H, W) and the label of a serialised Datum.

    The image is uint8 from ``data`` (decoded if ``encoded``), float32 from ``float_data``. It may be
    read-only.

    Args:
        channels: what encoded images are converted to, 1 or 3; ``None`` keeps what the file has.

    Raises:
        DataError: not a Datum, or its size is not channels × height × width. Caffe would read past the end.
    """
    try:
        datum = pb.Datum.FromString(record)
    except DecodeError:
        raise DataError("not a Datum, or a damaged one") from None
    if datum.encoded:
        return decode_image(datum.data, channels), datum.label
    shape = (datum.channels, datum.height, datum.width)
    if min(shape) <= 0:
        raise DataError(f"a Datum of channels × height × width = {_show(shape)}; each must be at least 1")
    data = datum.data
    # The common case first: it is the hot path of reading.
    values: Image = np.frombuffer(data, np.uint8) if data else np.array(datum.float_data, np.float32)
    if values.size != shape[0] * shape[1] * shape[2]:
        need = shape[0] * shape[1] * shape[2]
        raise DataError(f"a Datum of channels × height × width = {_show(shape)} needs {need} values, has {values.size}")
    return values.reshape(shape), datum.label


def encode_datum(image: Image, label: int) -> pb.Datum:
    """The Datum of an ``image`` (C, H, W), uint8 as ``data`` or float32 as ``float_data``."""
    channels, height, width = image.shape
    datum = pb.Datum(channels=channels, height=height, width=width, label=label)
    if image.dtype == np.uint8:
        datum.data = image.tobytes()
    else:
        datum.float_data.extend(image.ravel().tolist())
    return datum


def _show(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
