"""Prepare image files as the input of a net, in the same way as the images that it was trained with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.apps.pictures.fed_net import NetWithInputs
from bpt.base.caller import for_caller
from bpt.base.errors import DataError, FileError, PrototxtError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, COLUMNS
from bpt.data.image import Pixels
from bpt.data.image_source import read_image
from bpt.data.object_boxes import WHOLE, Box, within
from bpt.data.opencv_resize import resize
from bpt.data.resizing import Resizing
from bpt.data.sample_draws import SampleDraws
from bpt.data.sampler import SampleDraw
from bpt.data.source import Sample
from bpt.data.transform import Transform, read_mean
from bpt.graph.layer_spec import Shape, shape_text
from bpt.nn.layers import LAYERS, DataLayer
from bpt.train.state.preprocessing import beside, check_shape, read_preprocessing
from bpt.train.state.weights import check_weights

Images = NDArray[np.float32]

NOBODY_SAYS = "nothing says how images were prepared when the net was trained"


def how_to_say() -> str:
    """Return a remedy for an error or a warning with NOBODY_SAYS."""
    return (
        f"give {for_caller('--preprocessing FILE', 'preprocessing=FILE')}: bpt train writes one beside its snapshots, "
        "<snapshot_prefix>_preprocessing.prototxt, and by hand it is, for instance: height: 256 width: 256 "
        "transform_param { crop_size: 224 mean_value: 104 mean_value: 117 mean_value: 123 }; or "
        f"{for_caller('give --model', 'load')} the text that the net was trained with"
    )


class Prepared(NamedTuple):
    """Pictures as a net's input.

    Attributes:
        input: the input, (N, channels, height, width).
        sizes: the height and width of each picture, in pixels.
        parts: the box of each picture that the net sees, as fractions of the picture's size. With padding, it extends
            beyond the picture.
    """

    input: Images
    sizes: Sequence[Shape]
    parts: Sequence[Box]


class ImageInput:
    """Reads and prepares image files as the net's data layer does.

    Args:
        param: the settings; sizes that are not set are those of the net.
        shape: (channels, height, width) of a sample of the net's input.
        source: words for where the settings come from, for messages.

    Raises:
        UserError: prepared images do not have the shape of the input, or the settings contradict each other.
        FileError: the mean file cannot be used.
    """

    def __init__(self, param: pb.ImagePreprocessing, shape: Shape, source: str) -> None:
        self._param = param
        self._shape = shape
        self._channels: int = param.channels or shape[0]
        transform = param.transform_param
        self._transform = Transform(transform, pb.TEST)
        self._resizing = Resizing(transform.resize_param) if transform.HasField("resize_param") else None
        self._size: Shape = (param.height, param.width) if param.height else ()
        if self._resizing and self._size:
            raise UserError("give height and width, or resize_param in transform_param, not both")
        if not (self._size or self._resizing or transform.crop_size or transform.crop_h):
            self._size = shape[1:]
        known = self._resizing.size if self._resizing and self._resizing.is_fixed else self._size
        if known:
            self._check(self._transform.infer((self._channels, *known)), source)
        resized = f"resized to {shape_text(self._size)}, " if self._size else ""
        resized = f"{self._resizing}, " if self._resizing else resized
        colors = "gray" if self._channels == 1 else "blue, green, red"
        self._source = source
        self._words = f"{colors}, {resized}{self._transform} ({source})"

    def __str__(self) -> str:
        return self._words

    @property
    def record(self) -> pb.ImagePreprocessing:
        """The settings, with the sizes that the net's input adds. Of a mean file, only the name is kept."""
        found = pb.ImagePreprocessing()
        found.CopyFrom(self._param)
        found.channels = self._channels
        if self._size:
            found.height, found.width = self._size
        if found.transform_param.mean_file:
            found.transform_param.mean_file = os.path.basename(found.transform_param.mean_file)
        return found

    def __call__(self, files: Sequence[str]) -> Prepared:
        """Return the image files as the net's input.

        Raises:
            FileError: a file is missing or no image; the error names it.
            DataError: an image is too small for the crop.
            UserError: prepared images do not have the shape of the input.
        """
        return self.prepare([_picture(file, self._channels) for file in files], files)

    def random(self, count: int, generator: np.random.Generator) -> Images:
        """Return ``count`` pictures of random pixels as the net's input.

        Raises:
            UserError: prepared images do not have the shape of the input.
        """
        mean_file = "" if self._size else self._param.transform_param.mean_file
        height, width = read_mean(mean_file).shape[1:] if mean_file else self._shape[1:]
        pixels = generator.integers(0, 256, (count, self._channels, height, width), np.uint8)
        return self.prepare(list(pixels), [f"random picture {number}" for number in range(count)]).input

    def prepare(self, read: Sequence[Pixels], names: Sequence[str]) -> Prepared:
        """Return decoded pictures (channels, height, width) as the net's input; errors are those of ``__call__``.

        Args:
            read: the pictures.
            names: their names, for messages.
        """
        resized = [self._resized(image) for image in read]
        samples = [Sample(name, image, 0.0) for name, (image, _) in zip(names, resized, strict=True)]
        self._check(self._transform.common_shape(samples), self._source)
        out = np.empty((len(read), *self._shape), np.float32)
        none = np.zeros(len(read), np.int64)
        draw = SampleDraw(none, none)
        self._transform(samples, draw, out)
        tops, lefts = self._transform.offsets(samples, draw)
        parts = []
        for (image, placed), top, left in zip(resized, tops, lefts, strict=True):
            height, width = image.shape[1:]
            window = np.array((left, top, left + self._shape[2], top + self._shape[1])) / np.array((width, height) * 2)
            parts.append(within(window.astype(np.float32), placed))
        return Prepared(out, [image.shape[1:] for image in read], parts)

    def _resized(self, image: Pixels) -> tuple[Pixels, Box]:
        """Return the picture in its new size, and the box that it fills there, as fractions of that size."""
        if self._resizing is None:
            return (resize(image, *self._size) if self._size else image), WHOLE
        row = np.zeros((1, COLUMNS), np.float32)
        row[:, BOX] = WHOLE
        resized, rows = self._resizing(image, row, SampleDraws(0, 0, 0))  # the TEST phase draws no random numbers
        return resized, rows[0, BOX]

    def _check(self, made: Shape, source: str) -> None:
        if made != self._shape:
            raise UserError(
                f"an image becomes {shape_text(made)} ({source}), but the net's input is {shape_text(self._shape)}"
            )


def _picture(file: str, channels: int) -> Pixels:
    """Return the pixels of ``file``; raise a FileError, and not a DataError, because the user has named the file."""
    try:
        return read_image(file, channels)
    except DataError as error:
        raise FileError(
            file, f"{str(error).removeprefix(f'{file}: ')}; leave it out, or replace it by an undamaged file"
        ) from None


def image_input(net: NetWithInputs, weights: Sequence[str], given: str = "") -> ImageInput:
    """Return the preparation of images for ``net``.

    Args:
        net: the net.
        weights: the files of its weights; a record of the preparation may be beside one of them.
        given: the record's file. "": the net's data layer says how or, without one, the record beside the weights.

    Raises:
        FileError: nothing says how images are prepared, and a file of weights has another content.
        UserError: the input is no image, nothing says how images are prepared, or the settings do not fit the input.
    """
    if net.axes != 2:
        name, hint = f'"{net.input.blob}" {net.input.shape}', "; bpt explain takes a scan" if net.axes == 3 else ""
        raise UserError(f"{net.model}: its input {name} has {net.axes} spatial axes; images have 2{hint}")
    found = recorded_input(net, weights, given)
    if found is None:
        check_weights(weights)  # if a file has no weights, that is the mistake to report
        raise UserError(f"{NOBODY_SAYS}; {how_to_say()}")
    return found


def record_of(weights: Sequence[str], given: str = "") -> str:
    """Return the file that records how inputs are prepared: ``given``, else that beside the last weights, else ""."""
    return given or next((record for each in reversed(weights) if (record := beside(each))), "")


def recorded_input(net: NetWithInputs, weights: Sequence[str], given: str = "") -> ImageInput | None:
    """Return the preparation as image_input does; ``None`` if the input is no image, or nothing says how."""
    if net.axes != 2:
        return None
    shape = net.input.shape[1:]
    kind = LAYERS[net.data.type]
    if not given and issubclass(kind, DataLayer):
        found = kind.preprocessing(net.data)
        if found is not None:
            return ImageInput(found, shape, f'as layer "{net.data.name}" says')
    path = record_of(weights, given)
    if not path:
        return None
    found = read_preprocessing(path)
    check_shape(found, path)
    if found.HasField("intensity"):
        raise FileError(path, "intensity is for scans; an image takes mean_value and scale in transform_param")
    try:
        return ImageInput(found, shape, f"as {path} says")
    except PrototxtError:
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
