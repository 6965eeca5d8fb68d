"""Image files as the input of a net, prepared as the images that it was trained with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpt.classify.classifier_net import ClassifierNet
from bpt.data.image import resize
from bpt.data.image_source import read_image
from bpt.data.sampler import Draw
from bpt.data.source import Sample
from bpt.data.transform import Transform
from bpt.errors import PrototxtError, UserError
from bpt.graph.spec import Shape
from bpt.layers import LAYERS, DataLayer
from bpt.proto import bpt_pb2 as pb
from bpt.state.preprocessing import beside, check_shape, read_preprocessing

Images = NDArray[np.float32]

_HOW = (
    "give --preprocessing FILE: bpt train writes one beside its snapshots, <snapshot_prefix>_preprocessing.prototxt, "
    "and by hand it is, for instance: height: 256 width: 256 transform_param { crop_size: 224 mean_value: 104 "
    "mean_value: 117 mean_value: 123 }; or give --model the text that the net was trained with"
)


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
        self._shape = shape
        self._channels: int = param.channels or shape[0]
        self._size: Shape = (param.height, param.width) if param.height else ()
        self._transform = Transform(param.transform_param, pb.TEST)
        if not self._size and not param.transform_param.crop_size:
            self._size = shape[1:]
        if self._size and (made := self._transform.infer((self._channels, *self._size))) != shape:
            raise UserError(f"an image becomes {_times(made)} ({source}), but the net's input is {_times(shape)}")
        resized = f"resized to {_times(self._size)}, " if self._size else ""
        colors = "gray" if self._channels == 1 else "blue, green, red"
        self._words = f"{colors}, {resized}{self._transform} ({source})"

    def __str__(self) -> str:
        return self._words

    def __call__(self, files: Sequence[str]) -> Images:
        """The input (N, channels, height, width) that ``files`` give.

        Raises:
            DataError: a file is missing or no image, or too small for the crop; it is named.
        """
        samples = [Sample(file, self._read(file), 0.0) for file in files]
        self._transform.common_shape(samples)
        out = np.empty((len(files), *self._shape), np.float32)
        none = np.zeros(len(files), np.int64)
        self._transform(samples, Draw(none, none), out)
        return out

    def _read(self, file: str) -> NDArray[np.uint8]:
        image = read_image(file, self._channels)
        return resize(image, *self._size) if self._size else image


def image_input(net: ClassifierNet, weights: Sequence[str], given: str = "") -> ImageInput:
    """How to prepare images for ``net``.

    Args:
        weights: its files; a record may stand beside one of them.
        given: a record; "": the net's data layer says or, if it has none, the record beside the weights.

    Raises:
        UserError: nobody says, or what is said does not fit the net's input.
    """
    shape = net.input.shape[1:]
    kind = LAYERS[net.data.type]
    found = None
    if not given and issubclass(kind, DataLayer):
        found = kind.preprocessing(net.data)
        if found is not None:
            return ImageInput(found, shape, f'as layer "{net.data.name}" says')
    path = given or next((record for each in reversed(weights) if (record := beside(each))), "")
    if not path:
        raise UserError(f"nothing says how images were prepared when the net was trained; {_HOW}")
    found = read_preprocessing(path)
    check_shape(found, path)
    try:
        return ImageInput(found, shape, f"as {path} says")
    except PrototxtError:
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
