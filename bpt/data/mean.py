"""Mean images: BlobProto files that are subtracted from every image."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bpt.data.source import Image
from bpt.errors import BptError, FileError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import read_binary, write_binary
from bpt.proto.blobs import array_to_blob, blob_to_array


def read_mean(path: str) -> NDArray[np.float32]:
    """The mean image (C, H, W) in the file ``path``, as Caffe's compute_image_mean writes it.

    Raises:
        FileError: missing, not a BlobProto, or not one image.
    """
    try:
        mean = blob_to_array(read_binary(path, pb.BlobProto))
    except FileError:
        raise
    except BptError as error:
        raise FileError(path, str(error)) from None
    if mean.ndim == 4 and mean.shape[0] == 1:
        mean = mean[0]
    if mean.ndim != 3:
        raise FileError(path, f"holds a blob of shape {mean.shape}, not one image (1, C, H, W)")
    return mean


def write_mean(path: str | os.PathLike[str], mean: NDArray[np.float32]) -> None:
    """Write the mean image (C, H, W) as Caffe does: a BlobProto (1, C, H, W) with the old fields."""
    blob = array_to_blob(mean)
    blob.ClearField("shape")
    blob.num, blob.channels, blob.height, blob.width = 1, *mean.shape
    write_binary(path, blob)


def mean_image(images: Iterable[Image]) -> NDArray[np.float32]:
    """The mean of ``images``, all of one shape (C, H, W); there must be at least one."""
    images = iter(images)
    total = next(images).astype(np.float64)
    count = 1
    for image in images:
        total += image
        count += 1
    return (total / count).astype(np.float32)
