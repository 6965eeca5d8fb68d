"""Converts listed image files to an LMDB as Caffe's convert_imageset does; other converters of lists share the code."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from bpt.base.errors import DataError, FileError, UsageError
from bpt.base.user_files import read_bytes
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import encode_datum
from bpt.data.image import Pixels, import_pillow
from bpt.data.image_source import ImageSource
from bpt.data.lmdb_file import LmdbWriter
from bpt.data.opencv_resize import resize
from bpt.data.source import Image, Sample, slash_remedy
from bpt.graph.layer_spec import shape_text

COLOUR, GREY = 3, 1
SEED = 0
FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "bmp": "BMP", "ppm": "PPM", "pgm": "PPM", "webp": "WEBP",
           "tif": "TIFF", "tiff": "TIFF"}  # fmt: skip
"""Suffix of a file's name → Pillow's name of the format."""
_QUALITY = 95  # OpenCV's quality of JPEG
_SHOWN = 1000  # images between two reports of progress
_TOLD = 10  # errors to report while no image could be read: then the folder or the list is wrong


@dataclass(frozen=True)
class ImageConversion:
    """The processing of each image.

    Attributes:
        grey: whether to store one channel instead of blue, green and red.
        height, width: the size of resized images; both or none (0).
        min_dim, max_dim: least length of the shorter side, and largest length of the longer one; images are scaled in
            proportion, to ``max_dim`` first; 0: no limit.
        encoded: whether to store image files instead of pixels.
        encode_type: the format of these files, a key of FORMATS; "": that of each source file.
        check_size: whether to refuse images with another shape than the first.
        shuffle: whether to shuffle the images, in the same order in every run.
    """

    grey: bool = False
    height: int = 0
    width: int = 0
    encoded: bool = False
    encode_type: str = ""
    check_size: bool = False
    shuffle: bool = False
    min_dim: int = 0
    max_dim: int = 0

    def __post_init__(self) -> None:
        if min(self.min_dim, self.max_dim) < 0:
            raise UsageError("--min_dim and --max_dim must not be negative")
        if self.height and (self.min_dim or self.max_dim):
            raise UsageError("give --resize_height and --resize_width, or --min_dim and --max_dim; not both")
        if min(self.height, self.width) < 0:
            raise UsageError("--resize_height and --resize_width must not be negative")
        if bool(self.height) != bool(self.width):
            raise UsageError("images are resized to a height and a width: give both --resize_height and --resize_width")
        if self.encode_type and not self.encoded:
            raise UsageError("--encode_type goes with --encoded")
        if self.encode_type and self.encode_type.lower() not in FORMATS:
            raise UsageError(f'--encode_type takes one of {", ".join(FORMATS)}, found "{self.encode_type}"')

    @property
    def resizes(self) -> bool:
        return bool(self.height or self.min_dim or self.max_dim)

    def resized(self, image: Pixels) -> Pixels:
        """Return ``image`` (C, H, W) in the requested size."""
        height, width = image.shape[1:]
        if self.height:
            return resize(image, self.height, self.width)
        factor = max(self.min_dim / min(height, width), 1.0)
        if self.max_dim and int(factor * max(height, width)) > self.max_dim:
            factor = self.max_dim / max(height, width)
        return resize(image, round(height * factor), round(width * factor)) if factor != 1 else image


class Listed(Protocol):
    """An image that a list names; ``key`` is its path there."""

    @property
    def key(self) -> str: ...

    @property
    def image(self) -> Image: ...


S = TypeVar("S", bound=Listed)
S_co = TypeVar("S_co", bound=Listed, covariant=True)


class ListedSource(Protocol[S_co]):
    """A list of images, each with a ``key``."""

    path: str

    def __len__(self) -> int: ...

    def read(self, index: int) -> S_co: ...


Tell = Callable[[str], None]


def convert_imageset(
    root: str, listed: str, target: str, wanted: ImageConversion, tell: Tell = lambda line: None
) -> tuple[int, int]:
    """Write the images that the file ``listed`` names, below ``root``, to the LMDB ``target`` (see ``write_listed``).

    Raises:
        FileError: the list is wrong, or as in ``write_listed``.
    """
    source = labelled_images(root, listed, wanted)
    return write_listed(source, root, target, wanted, partial(labelled_datum, root, wanted), tell)


def labelled_images(root: str, listed: str, wanted: ImageConversion) -> ImageSource:
    """Return the images of a list of paths and labels."""
    size = (wanted.height, wanted.width) if wanted.height else ()
    return ImageSource(listed, root_folder=root, size=size, channels=GREY if wanted.grey else COLOUR)


def labelled_datum(root: str, wanted: ImageConversion, sample: Sample) -> pb.Datum:
    """Return the record of an image of ``labelled_images``."""
    return image_datum(root, sample.key, sample.image, int(sample.label), wanted)


def write_listed(
    source: ListedSource[S],
    root: str,
    target: str,
    wanted: ImageConversion,
    record: Callable[[S], pb.Datum | pb.AnnotatedDatum],
    tell: Tell,
) -> tuple[int, int]:
    """Write the ``record`` of each image of ``source`` to the LMDB ``target``.

    Keys are ``00000007_path``. As in Caffe, an unreadable image is reported and left out. While no image could be
    read, only the first ones are reported. Images of different sizes are reported once.

    Returns:
        How many images were written, and how many could not be read.

    Raises:
        FileError: no image could be read, so the folder is wrong; or ``target`` exists.
        DataError: ``check_size`` is set, and an image has another shape. Then no LMDB is written.
        WriteError: the LMDB could not be written.
    """
    left_out, alike = 0, True
    first: S | None = None
    with LmdbWriter(target) as writer:
        for place, index in enumerate(_order(len(source), wanted.shuffle)):
            try:
                sample = source.read(index)
            except DataError as error:
                left_out += 1
                if first or left_out <= _TOLD:
                    tell(f"left out: {error}")
                elif left_out == _TOLD + 1:
                    tell("left out: the next ones, too, until one can be read")
                continue
            first = first or sample
            if alike and sample.image.shape != first.image.shape:
                alike = False
                problem = (
                    f"{root}{sample.key}: is of {shape_text(sample.image.shape)}, the first image of "
                    f"{shape_text(first.image.shape)}; --resize_height and --resize_width make them equal"
                )
                if wanted.check_size:
                    raise DataError(problem)
                tell(f"{problem}, or the net needs a crop_size")
            writer.put(record(sample), f"{place:08d}_{sample.key}")
            if len(writer) % _SHOWN == 0:
                tell(f"Processed {len(writer)} files.")
        if not len(writer):
            nothing = f"none of its {len(source)} images could be read; their paths begin"
            if len(source) == 1:
                nothing = "its one image could not be read; its path begins"
            raise FileError(
                source.path,
                f'{nothing} with ROOTFOLDER as it is, "{root}"{slash_remedy(root)}',
            )
    return len(writer), left_out


def _order(count: int, shuffle: bool) -> Iterator[int]:
    yield from np.random.default_rng(SEED).permutation(count).tolist() if shuffle else range(count)


def image_datum(root: str, name: str, image: Image, label: int, wanted: ImageConversion) -> pb.Datum:
    """Return the record of the ``image`` in the file ``name`` below ``root``.

    An encoded record has the file's own bytes if the image need not change.

    Raises:
        DataError: the image must be encoded, and the suffix is not that of a format.
    """
    assert image.dtype == np.uint8, "images are bytes"
    if not wanted.encoded:
        return encode_datum(image, label)
    own = os.path.splitext(name)[1].lstrip(".").lower()
    wished = wanted.encode_type.lower() or own
    if FORMATS.get(wished) is None:
        raise DataError(f"{root}{name}: its suffix is not that of a format to encode in; give --encode_type")
    if not wanted.resizes and FORMATS.get(own) == FORMATS[wished] and not wanted.grey:
        return pb.Datum(data=read_bytes(root + name), label=label, encoded=True)
    return pb.Datum(data=_encode(image.astype(np.uint8), FORMATS[wished]), label=label, encoded=True)


def _encode(image: Pixels, form: str) -> bytes:
    """Return an image (C, H, W), with blue first, as the bytes of a file."""
    pixels = image[0] if len(image) == GREY else image[::-1].transpose(1, 2, 0)
    content = io.BytesIO()
    quality = {"quality": _QUALITY} if form in ("JPEG", "WEBP") else {}
    import_pillow().fromarray(np.ascontiguousarray(pixels)).save(content, format=form, **quality)
    return content.getvalue()
