"""Compute the mean image of a database, with the output of Caffe's compute_image_mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from bpt.base.atomic import check_place
from bpt.base.errors import DataError
from bpt.data.lmdb_file import LmdbSource
from bpt.data.source import Image
from bpt.data.transform import mean_image, write_mean

_SHOWN = 10000  # images between two reports of progress


def compute_image_mean(
    path: str, output: str = "", tell: Callable[[str], None] = lambda line: None
) -> NDArray[np.float32]:
    """Return the mean (C, H, W) of the images in the LMDB ``path``, and write it to ``output``, if that is given.

    Args:
        path: the LMDB.
        output: the file to write; "": none.
        tell: takes the lines that Caffe's program prints.

    Raises:
        FileError: ``path`` is no LMDB, or the folder of ``output`` is missing.
        DataError: a record is no image, or has another shape than the first one.
        WriteError: ``output`` could not be written.
    """
    if output:
        check_place(output)
    source = LmdbSource(path)
    try:
        mean = mean_image(_images(source, tell))
    finally:
        source.close()
    if output:
        tell(f"Write to {output}")
        write_mean(output, mean)
    tell(f"Number of channels: {len(mean)}")
    for channel, values in enumerate(mean):
        tell(f"mean_value channel [{channel}]: {values.mean(dtype=np.float64):g}")
    return mean


def _images(source: LmdbSource, tell: Callable[[str], None]) -> Iterator[Image]:
    shape: tuple[int, ...] = ()
    for number in range(len(source)):
        key, image, _ = source.read(number)
        shape = shape or image.shape
        if image.shape != shape:
            raise DataError(
                f'{source.path}: record "{key}" has the shape {image.shape}, but the first one has {shape}; a mean '
                "needs images of one size (bpt convert imageset: --resize_height, --resize_width)"
            )
        yield image
        if (number + 1) % _SHOWN == 0 or number + 1 == len(source):
            tell(f"Processed {number + 1} files.")
