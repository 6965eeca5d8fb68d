"""Listed image files as an LMDB, as Caffe's convert_imageset writes it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bpt.data.datum import encode_datum
from bpt.data.image import Pixels, import_pillow
from bpt.data.image_source import ImageSource
from bpt.data.lmdb_file import LmdbWriter
from bpt.data.source import Sample, slash_remedy
from bpt.errors import DataError, FileError, UsageError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.files import read_bytes

COLOUR, GREY = 3, 1
SEED = 0
FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "bmp": "BMP", "ppm": "PPM", "pgm": "PPM", "webp": "WEBP",
           "tif": "TIFF", "tiff": "TIFF"}  # fmt: skip
"""End of a file's name → Pillow's name of the format."""
_QUALITY = 95  # OpenCV's of JPEG
_SHOWN = 1000  # images, after which progress is told
_TOLD = 10  # images that are told while none could be read: the folder or the list is wrong then


@dataclass(frozen=True)
class Wanted:
    """What becomes of each image.

    Attributes:
        grey: one channel instead of blue, green and red.
        height, width: to resize to; both or none (0).
        encoded: store image files instead of pixels.
        encode_type: their format, a key of FORMATS; "": that of each file.
        check_size: refuse images of another shape than the first.
        shuffle: put them in an order drawn by chance, the same in every run.
    """

    grey: bool = False
    height: int = 0
    width: int = 0
    encoded: bool = False
    encode_type: str = ""
    check_size: bool = False
    shuffle: bool = False

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 0:
            raise UsageError("--resize_height and --resize_width must not be negative")
        if bool(self.height) != bool(self.width):
            raise UsageError("images are resized to a height and a width: give both --resize_height and --resize_width")
        if self.encode_type and not self.encoded:
            raise UsageError("--encode_type goes with --encoded")
        if self.encode_type and self.encode_type.lower() not in FORMATS:
            raise UsageError(f'--encode_type takes one of {", ".join(FORMATS)}, found "{self.encode_type}"')


def convert_imageset(
    root: str, listed: str, target: str, wanted: Wanted, tell: Callable[[str], None] = lambda line: None
) -> tuple[int, int]:
    """Write the images that the file ``listed`` names, below ``root``, to the LMDB ``target``.

    Keys are ``00000007_path``. An image that cannot be read is told and left out, as in Caffe; while none could be
    read, only the first ones are told. Images of unlike sizes are told once.

    Returns:
        How many were written, and how many could not be read.

    Raises:
        FileError: the list or the folder is wrong: no image could be read; or ``target`` exists.
        DataError: ``check_size``, and an image has another shape. No LMDB is written then.
        WriteError: it could not be written.
    """
    size = (wanted.height, wanted.width) if wanted.height else ()
    source = ImageSource(listed, root_folder=root, size=size, channels=GREY if wanted.grey else COLOUR)
    left_out, alike = 0, True
    first: Sample | None = None
    with LmdbWriter(target) as writer:
        for place, index in enumerate(_order(len(source), wanted.shuffle)):
            try:
                sample = source.read(index)
            except DataError as error:
                left_out += 1
                if first or left_out <= _TOLD:
                    tell(f"left out: {error}")
                elif left_out == _TOLD + 1:
                    tell("left out: the next ones, too, up to the first that can be read")
                continue
            first = first or sample
            if alike and sample.image.shape != first.image.shape:
                alike = False
                problem = (
                    f"{root}{sample.key}: is of {_show(sample.image.shape)}, the first image of "
                    f"{_show(first.image.shape)}; --resize_height and --resize_width make them alike"
                )
                if wanted.check_size:
                    raise DataError(problem)
                tell(f"{problem}, or the net needs a crop_size")
            writer.put(_datum(root, sample, wanted), f"{place:08d}_{sample.key}")
            if len(writer) % _SHOWN == 0:
                tell(f"Processed {len(writer)} files.")
        if not len(writer):
            nothing = f"none of its {len(source)} images could be read; their paths begin"
            if len(source) == 1:
                nothing = "its one image could not be read; its path begins"
            raise FileError(
                listed,
                f'{nothing} with ROOTFOLDER as it is, "{root}"{slash_remedy(root)}',
            )
    return len(writer), left_out


def _order(count: int, shuffle: bool) -> Iterator[int]:
    yield from np.random.default_rng(SEED).permutation(count).tolist() if shuffle else range(count)


def _datum(root: str, sample: Sample, wanted: Wanted) -> pb.Datum:
    assert sample.image.dtype == np.uint8, "images are bytes"
    label = int(sample.label)
    if not wanted.encoded:
        return encode_datum(sample.image, label)
    own = os.path.splitext(sample.key)[1].lstrip(".").lower()
    wished = wanted.encode_type.lower() or own
    if FORMATS.get(wished) is None:
        raise DataError(
            f"{root}{sample.key}: the end of its name is that of no format to encode in: give --encode_type"
        )
    if not wanted.height and FORMATS.get(own) == FORMATS[wished] and not wanted.grey:
        return pb.Datum(data=read_bytes(root + sample.key), label=label, encoded=True)
    return pb.Datum(data=_encode(sample.image.astype(np.uint8), FORMATS[wished]), label=label, encoded=True)


def _encode(image: Pixels, form: str) -> bytes:
    """The file of an image (C, H, W), blue first."""
    pixels = image[0] if len(image) == GREY else image[::-1].transpose(1, 2, 0)
    content = io.BytesIO()
    quality = {"quality": _QUALITY} if form in ("JPEG", "WEBP") else {}
    import_pillow().fromarray(np.ascontiguousarray(pixels)).save(content, format=form, **quality)
    return content.getvalue()


def _show(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
