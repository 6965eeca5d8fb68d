"""Image files as the input of a net, prepared as the images that it was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.apps.pictures.fed_net import NetWithInputs
from bpt.base.caller import for_caller
from bpt.base.errors import DataError, FileError, PrototxtError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, COLUMNS
from bpt.data.image import Pixels, resize
from bpt.data.image_source import read_image
from bpt.data.object_boxes import WHOLE, Box, within
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
    """Return what to do if nothing says how images were prepared."""
    return (
        f"give {for_caller('--preprocessing FILE', 'preprocessing=FILE')}: bpt train writes one beside its snapshots, "
        "<snapshot_prefix>_preprocessing.prototxt, and by hand it is, for instance: height: 256 width: 256 "
        "transform_param { crop_size: 224 mean_value: 104 mean_value: 117 mean_value: 123 }; or "
        f"{for_caller('give --model', 'load')} the text that the net was trained with"
    )


class Prepared(NamedTuple):
    """Pictures as a net's input.

    Attributes:
        input: (N, channels, height, width).
        sizes: height and width of each picture, in pixels.
        parts: what the net sees of each, in parts of the picture; where there is padding, it reaches beyond.
    """

    input: Images
    sizes: Sequence[Shape]
    parts: Sequence[Box]


class ImageInput:
    """Reads image files, and makes of them what the net's data layer would.

    Args:
        param: how; sizes that it does not give are the net's.
        shape: (channels, height, width) of a sample of the net's input.
        source: who says so, in words.

    Raises:
        UserError: what comes out does not have the shape of the input, or the settings contradict each other.
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

    def __call__(self, files: Sequence[str]) -> Prepared:
        """``files`` as the net's input.

        Raises:
            FileError: a file is missing or no image; it is named.
            DataError: an image is too small for the crop.
            UserError: what comes out does not have the shape of the input.
        """
        return self.prepare([_picture(file, self._channels) for file in files], files)

    def random(self, count: int, generator: np.random.Generator) -> Images:
        """So many pictures of random pixels as the net's input.

        Raises:
            UserError: what comes out does not have the shape of the input.
        """
        mean_file = "" if self._size else self._param.transform_param.mean_file
        height, width = read_mean(mean_file).shape[1:] if mean_file else self._shape[1:]
        pixels = generator.integers(0, 256, (count, self._channels, height, width), np.uint8)
        return self.prepare(list(pixels), [f"random picture {number}" for number in range(count)]).input

    def prepare(self, read: Sequence[Pixels], names: Sequence[str]) -> Prepared:
        """Return decoded pictures (channels, height, width) as the net's input.

        For ``names`` and errors see ``__call__``.
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
        """Return the picture in its new size, and where it then lies, in parts of that."""
        if self._resizing is None:
            return (resize(image, *self._size) if self._size else image), WHOLE
        row = np.zeros((1, COLUMNS), np.float32)
        row[:, BOX] = WHOLE
        resized, rows = self._resizing(image, row, SampleDraws(0, 0, 0))  # draws nothing: there is one way to resize
        return resized, rows[0, BOX]

    def _check(self, made: Shape, source: str) -> None:
        if made != self._shape:
            raise UserError(
                f"an image becomes {shape_text(made)} ({source}), but the net's input is {shape_text(self._shape)}"
            )


def _picture(file: str, channels: int) -> Pixels:
    """Return what is in ``file``, which the user has named: it is no record of a data set."""
    try:
        return read_image(file, channels)
    except DataError as error:
        raise FileError(
            file, f"{str(error).removeprefix(f'{file}: ')}; leave it out, or put a whole one there"
        ) from None


def image_input(net: NetWithInputs, weights: Sequence[str], given: str = "") -> ImageInput:
    """Return how to prepare images for ``net``, wherever a picture becomes an input.

    Args:
        weights: its files; a record may stand beside one of them.
        given: a record; "": the net's data layer says or, if it has none, the record beside the weights.

    Raises:
        FileError: nobody says, and a file of weights is something else.
        UserError: the input is no image, nobody says, or what is said does not fit the net's input.
    """
    if net.axes != 2:
        name, hint = f'"{net.input.blob}" {net.input.shape}', "; bpt explain takes a scan" if net.axes == 3 else ""
        raise UserError(f"{net.model}: its input {name} has {net.axes} spatial axes; images have 2{hint}")
    found = recorded_input(net, weights, given)
    if found is None:
        check_weights(weights)  # a file that is something else has no record, and that is the user's mistake then
        raise UserError(f"{NOBODY_SAYS}; {how_to_say()}")
    return found


def record_of(weights: Sequence[str], given: str = "") -> str:
    """Return the record of how inputs are prepared: the given one, else the one beside the last weights.

    "": there is none.
    """
    return given or next((record for each in reversed(weights) if (record := beside(each))), "")


def recorded_input(net: NetWithInputs, weights: Sequence[str], given: str = "") -> ImageInput | None:
    """Return what image_input returns; ``None``: the input is no image, or nobody says how to prepare images."""
    if net.axes != 2:
        return None
    shape = net.input.shape[1:]
    kind = LAYERS[net.data.type]
    found = None
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
