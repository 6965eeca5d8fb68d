"""``caffe.io``: images as arrays, their preprocessing for a net, and conversion between arrays and Caffe's messages.

``load_image`` returns images as arrays (height, width, channels) of float32 from 0 to 1, with the channels red, green,
blue. A Transformer converts them to the input format of a net.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from google.protobuf.message import DecodeError, Message

from bpt.apps.arguments import (
    checked_image,
    checked_images,
    checked_kind,
    checked_number,
    checked_path,
    checked_sizes,
    checked_whole,
    floats,
    shown,
)
from bpt.base.errors import BptError, FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.data.datum import encode_datum, holds_image_file
from bpt.data.image import decode_image
from bpt.data.skimage_pixels import decode_fractions
from bpt.graph.layer_spec import count

Array = npt.NDArray[Any]
Images = npt.NDArray[np.float32]
_LUMA = np.array([0.2125, 0.7154, 0.0721], np.float32)  # weights of red, green, blue (CIE 1931), as in scikit-image
_MODES = {0: "nearest-exact", 1: "bilinear", 3: "bicubic"}  # torch's modes by the order of the spline


def load_image(filename: str | os.PathLike[str], color: bool = True) -> Images:
    """Return the image in a file as scikit-image reads it, which pycaffe calls.

    An EXIF tag does not rotate the image. An alpha channel is dropped.

    Args:
        color: return three channels, even for a gray image. If False, return one channel, even for a coloured image.

    Returns:
        (height, width, 3) or (height, width, 1), float32 from 0 to 1; 16-bit values are divided by 65535.

    Raises:
        FileError: the file is missing, or holds no image.
    """
    path = checked_path(filename, "load_image: what is given")
    try:
        with open(path, "rb") as file:
            content = file.read()
        image = decode_fractions(content)
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except FileError:
        raise
    except BptError as error:
        raise FileError(path, str(error)) from None
    return image if color else np.asarray(image @ _LUMA, np.float32)[..., np.newaxis]


def resize_image(im: Array, new_dims: Sequence[int] | Array, interp_order: int = 1) -> Images:
    """Return an image (height, width, channels) resized, without antialiasing.

    Args:
        new_dims: height and width.
        interp_order: 0: nearest pixel, 1: bilinear, 3: bicubic.
    """
    if not isinstance(interp_order, int) or interp_order not in _MODES:
        order = shown(interp_order)
        raise UserError(f"resize_image: interp_order is 0 (nearest), 1 (linear) or 3 (cubic), not {order}")
    height, width = _size(new_dims, "resize_image: new_dims")
    image = checked_image(im, "resize_image: the image")
    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[np.newaxis]
    smooth: dict[str, Any] = {"align_corners": False, "antialias": False} if interp_order else {}
    sized = torch.nn.functional.interpolate(planes, size=(height, width), mode=_MODES[interp_order], **smooth)
    return np.ascontiguousarray(sized[0].numpy().transpose(1, 2, 0))


def oversample(images: Iterable[Array], crop_dims: Sequence[int] | Array) -> Images:
    """Return ten crops of each image: the four corners, the centre, and their mirror images.

    Args:
        images: images of one size, each (height, width, channels).
        crop_dims: height and width of a crop.

    Returns:
        (10 · images, height, width, channels), float32.
    """
    arrays = checked_images(images, "oversample: images")
    if len({image.shape for image in arrays}) > 1:
        raise UserError(f"oversample: images must be of one size, not {sorted({image.shape for image in arrays})}")
    stack = np.stack(arrays)
    height, width = _size(crop_dims, "oversample: crop_dims")
    below, right = stack.shape[1] - height, stack.shape[2] - width
    if below < 0 or right < 0:
        raise UserError(f"crops of {height} x {width} do not fit into images of {stack.shape[1]} x {stack.shape[2]}")
    corners = [(top, left) for top in (0, below) for left in (0, right)]
    places = [*corners, (below // 2, right // 2)]
    crops = np.stack([stack[:, top : top + height, left : left + width] for top, left in places], axis=1)
    both = np.concatenate([crops, crops[:, :, :, ::-1]], axis=1)
    return both.reshape(-1, height, width, stack.shape[3])


def _size(given: Any, what: str) -> tuple[int, int]:
    """Return height and width; fractions are cut off, because pycaffe accepts floats."""
    try:
        cut = [int(checked_number(size, what)) for size in given]
    except TypeError:
        cut = []
    height, width = checked_sizes(cut if len(cut) == 2 else [-1], f"{what} (height, width)", 2, least=1)
    return height, width


class Transformer:
    """The preprocessing of images for the inputs of a net.

    The steps are, in this order: resize, transpose, swap channels, scale, subtract the mean, scale again. A step that
    is not set is left out.

    Args:
        inputs: the shapes of inputs, by name: ``{"data": net.blobs["data"].data.shape}``.
    """

    def __init__(self, inputs: dict[str, Sequence[int]]) -> None:
        checked_kind(inputs, dict, "Transformer: what is given")
        self.inputs = {
            name: checked_sizes(shape, f'Transformer: the shape of "{name}"') for name, shape in inputs.items()
        }
        self.transpose: dict[str, tuple[int, ...]] = {}
        self.channel_swap: dict[str, tuple[int, ...]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Images] = {}
        self.input_scale: dict[str, float] = {}

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of axes: (2, 0, 1) puts channels first."""
        if not _is_order(order, len(self._sample(in_))):
            raise UserError(f'"{in_}" {self.inputs[in_]}: the transpose order must name each axis of an image once')
        self.transpose[in_] = tuple(order)

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of channels: (2, 1, 0) turns red, green, blue into blue, green, red."""
        if not _is_order(order, (*self._sample(in_), 0)[0]):
            raise UserError(f'"{in_}" {self.inputs[in_]}: the channel swap must name each of its channels once')
        self.channel_swap[in_] = tuple(order)

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set the factor before the mean is subtracted: 255 for a mean of pixels from 0 to 255."""
        self._sample(in_)
        self.raw_scale[in_] = checked_number(scale, "set_raw_scale: the scale")

    def set_mean(self, in_: str, mean: Array) -> None:
        """Set the mean to subtract: a number for each channel, or an image (channels, height, width).

        An image of another size is resized.
        """
        channels, *size = self._sample(in_) or (0,)
        values = floats(mean, "set_mean: the mean")
        if values.ndim == 1:
            if len(values) != channels:
                raise UserError(f'"{in_}" has {channels} channels, and the mean is of {len(values)}')
            values = values[:, np.newaxis, np.newaxis]
        else:
            values = values[np.newaxis] if values.ndim == 2 else values
            if values.ndim != 3 or values.shape[0] != channels:
                raise UserError(f'"{in_}" {self.inputs[in_]} takes no mean of shape {np.shape(mean)}')
            if list(values.shape[1:]) != size:
                values = resize_image(values.transpose(1, 2, 0), size).transpose(2, 0, 1)
        self.mean[in_] = values

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set the factor after the mean is subtracted."""
        self._sample(in_)
        self.input_scale[in_] = checked_number(scale, "set_input_scale: the scale")

    def preprocess(self, in_: str, data: Array) -> Images:
        """Return the array for the input ``in_`` that the steps make from the image ``data``."""
        size = self._sample(in_)[-2:]
        image = checked_image(data, "preprocess: the image")
        if image.shape[:2] != size:
            image = resize_image(image, size)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_])]
        image = image * np.float32(self.raw_scale.get(in_, 1))
        if in_ in self.mean:
            image = image - self.mean[in_]
        return np.asarray(image * np.float32(self.input_scale.get(in_, 1)), np.float32)

    def deprocess(self, in_: str, data: Array) -> Images:
        """Undo ``preprocess``: return the image for the array ``data`` of the input ``in_``, in the input's size."""
        self._sample(in_)
        given = floats(data, "deprocess: what is given").squeeze()
        if given.size != count(self._sample(in_)):
            raise UserError(f'deprocess: "{in_}" {self.inputs[in_]} has samples of other shapes than {np.shape(data)}')
        image: Images = given / np.float32(self.input_scale.get(in_, 1))
        if in_ in self.mean:
            image = image + self.mean[in_]
        image = image / np.float32(self.raw_scale.get(in_, 1))
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        return image.transpose(np.argsort(self.transpose[in_])) if in_ in self.transpose else image

    def _sample(self, in_: str) -> tuple[int, ...]:
        """Return the shape of a sample of an input."""
        if not isinstance(in_, str) or in_ not in self.inputs:
            raise UserError(f'"{in_}" is not an input of this Transformer ({", ".join(self.inputs)})')
        return self.inputs[in_][1:]


def _is_order(given: Any, count: int) -> bool:
    """Return whether ``given`` is a permutation of the numbers below ``count``."""
    try:
        return sorted(operator.index(each) for each in given) == list(range(count))
    except (TypeError, ValueError):
        return False


# Messages


def array_to_datum(arr: Array, label: int | np.integer[Any] | None = None) -> pb.Datum:
    """Return a Datum with an array (channels, height, width): as bytes if it is uint8, else as ``float_data``."""
    numbers = floats(arr, "array_to_datum: what is given", np.float64)
    arr = arr if isinstance(arr, np.ndarray) else numbers
    if isinstance(label, np.integer):
        label = int(label)
    if label is not None:
        label = checked_whole(label, "array_to_datum: the label")
    if arr.ndim != 3:
        raise UserError(f"a Datum holds an array (channels, height, width), not one of shape {arr.shape}")
    if arr.dtype == np.uint8:
        datum = encode_datum(arr, label or 0)
        if label is None:
            datum.ClearField("label")
        return datum
    datum = pb.Datum(channels=arr.shape[0], height=arr.shape[1], width=arr.shape[2])
    datum.float_data.extend(arr.astype(np.float64).ravel().tolist())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: pb.Datum) -> Array:
    """Return the array (channels, height, width) of a Datum.

    Bytes and encoded images become uint8, and an encoded image has the channels blue, green, red. ``float_data``
    becomes float64.
    """
    checked_kind(datum, Message, "datum_to_array: what is given")
    if holds_image_file(datum):
        return decode_image(datum.data)
    shape = datum.channels, datum.height, datum.width
    if datum.data:
        return np.frombuffer(datum.data, np.uint8).reshape(shape)
    return np.array(datum.float_data, np.float64).reshape(shape)


def blobproto_to_array(blob: pb.BlobProto, return_diff: bool = False) -> Images:
    """Return the data of a blob as an array in the blob's shape; a blob without a shape holds a single number.

    Args:
        return_diff: return the diff instead of the data.

    Raises:
        UserError: the number of values does not fit the shape.
    """
    checked_kind(blob, Message, "blobproto_to_array: what is given")
    if return_diff:
        diffs = pb.BlobProto()
        diffs.CopyFrom(blob)
        for name in ("data", "double_data"):
            diffs.ClearField(name)
        diffs.data.extend(blob.diff)
        diffs.double_data.extend(blob.double_diff)
        blob = diffs
    try:
        return blob_to_array(blob)
    except BptError as error:
        raise UserError(str(error)) from None


def array_to_blobproto(arr: Array, diff: Array | None = None) -> pb.BlobProto:
    """Return a blob with an array as its data and, if given, another as its diff."""
    floats(arr, "array_to_blobproto: the array")
    if diff is not None:
        floats(diff, "array_to_blobproto: the diff")
    try:
        return array_to_blob(arr, diff)
    except BptError as error:
        raise UserError(str(error)) from None


def arraylist_to_blobprotovector_str(arraylist: Iterable[Array]) -> bytes:
    """Return the arrays as the bytes of a BlobProtoVector."""
    if not np.iterable(arraylist):
        raise UserError(f"arraylist_to_blobprotovector_str takes a list of arrays, not {shown(arraylist)}")
    return pb.BlobProtoVector(blobs=map(array_to_blobproto, arraylist)).SerializeToString()


def blobprotovector_str_to_arraylist(vector: bytes) -> list[Images]:
    """Return the arrays in the bytes of a BlobProtoVector."""
    checked_kind(vector, bytes, "blobprotovector_str_to_arraylist: what is given")
    try:
        stored = pb.BlobProtoVector.FromString(vector)
    except DecodeError:
        raise UserError("blobprotovector_str_to_arraylist: the bytes are no BlobProtoVector, or cut") from None
    return [blobproto_to_array(blob) for blob in stored.blobs]
