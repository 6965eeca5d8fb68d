"""Transform: preprocessing of images for the net (Caffe: DataTransformer); and mean images with their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, DataError, FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_binary, write_binary
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.config.proto.fields import without
from bpt.data.finite import all_finite
from bpt.data.sampler import SampleDraw, below
from bpt.data.source import Image, Sample
from bpt.graph.layer_spec import Shape, shape_text


def read_mean(path: str, frames: int = 0) -> NDArray[np.float32]:
    """Return the mean image (C, H, W) in the file ``path``, as Caffe's compute_image_mean writes it.

    Args:
        frames: number of frames of a clip, whose mean file has the shape (1, C, frames, H, W), and whose mean is
            returned as (C · frames, H, W); 0: the data are images.

    Raises:
        FileError: the file is missing, is not a BlobProto, or does not have one image or one clip.
    """
    try:
        mean = blob_to_array(read_binary(path, pb.BlobProto))
    except FileError:
        raise
    except BptError as error:
        raise FileError(path, str(error)) from None
    if mean.ndim == 5 and mean.shape[0] == 1:
        mean = mean.reshape(-1, *mean.shape[3:])
    elif mean.ndim == 4 and mean.shape[0] == 1:
        mean = mean[0].repeat(frames, axis=0) if frames else mean[0]
    if mean.ndim != 3:
        raise FileError(path, f"holds a blob of shape {mean.shape}, not one image (1, C, H, W)")
    if not all_finite(mean):
        raise FileError(path, "has NaN or infinity, which would make pixels that are not finite")
    return mean


def check_mean(mean: NDArray[np.float32], image: Shape, path: str) -> None:
    """Raise a UserError unless the ``mean`` in the file ``path`` has the shape of an ``image`` (C, H, W)."""
    if mean.shape != image:
        raise UserError(
            f"the mean image is {shape_text(mean.shape)}, the image {shape_text(image)}: compute "
            f'"{path}" from these data (bpt convert mean), or give mean_value instead'
        )


def write_mean(path: str | os.PathLike[str], mean: NDArray[np.float32]) -> None:
    """Write the mean image (C, H, W) as Caffe does: a BlobProto (1, C, H, W) with the old fields."""
    blob = without(array_to_blob(mean), "shape")
    blob.num, blob.channels, blob.height, blob.width = 1, *mean.shape
    write_binary(path, blob)


def mean_image(images: Iterable[Image]) -> NDArray[np.float32]:
    """Return the mean of ``images``, all of one shape (C, H, W); there must be at least one."""
    images = iter(images)
    total = next(images).astype(np.float64)
    count = 1
    for image in images:
        total += image
        count += 1
    return (total / count).astype(np.float32)


Batch = NDArray[np.float32]


class Transform:
    """Crops and mirrors images, and normalises them by ``(x - mean) * scale``, by a TransformationParameter.

    The crop is at random in TRAIN, and in the centre (rounded up and left) in TEST; the mean image is cropped at the
    same place. ``mirror`` flips at random in both phases. Random choices depend only on (``seed``, epoch, sample).

    Args:
        frames: number of frames of a clip, one below the other in each channel; 0: the data are images.

    Raises:
        UserError: settings contradict each other.
        FileError: ``mean_file`` cannot be used.
    """

    def __init__(self, param: pb.TransformationParameter, phase: int, seed: int = 0, frames: int = 0) -> None:
        if param.HasField("mean_file") and param.mean_value:
            raise UserError("give mean_file or mean_value, not both")
        if param.force_color and param.force_gray:
            raise UserError("set force_color or force_gray, not both")
        if not np.isfinite([param.scale, *param.mean_value]).all():
            raise UserError("scale and mean_value must be finite")
        self.channels = 3 if param.force_color else 1 if param.force_gray else None  # of decoded images
        if bool(param.crop_h) != bool(param.crop_w) or (param.crop_h and param.crop_size):
            raise UserError("give crop_size, or crop_h and crop_w")
        self._crop = (param.crop_h or param.crop_size, param.crop_w or param.crop_size)  # (0, 0): none
        self._at_random = phase == pb.TRAIN
        self._mirror = param.mirror
        self._scale = np.float32(param.scale)
        self._mean_values = np.array(param.mean_value, np.float32)
        if frames and len(self._mean_values) > 1:
            self._mean_values = self._mean_values.repeat(frames)
        self._mean_file = param.mean_file
        self._mean = read_mean(param.mean_file, frames) if param.HasField("mean_file") else None
        self._seed = seed

    def with_seed(self, seed: int) -> Transform:
        """Return this transform with another seed."""
        other = copy(self)
        other._seed = seed
        return other

    def __str__(self) -> str:
        """Return the preprocessing of a test image in words."""
        values = ", ".join(f"{value:g}" for value in self._mean_values.tolist())
        done = [
            f"cropped to {shape_text(self._crop)}" if self._crop[0] else "",
            f"less the mean image {self._mean_file}" if self._mean is not None else "",
            f"less {values}" if values else "",
            f"times {self._scale:g}" if self._scale != 1 else "",
        ]
        return ", ".join(filter(None, done)) or "as it is"

    def infer(self, image: Shape) -> Shape:
        """Return the shape (C, h, w) of a transformed image of shape (C, H, W).

        Raises:
            UserError: the image does not fit the crop or the mean.
        """
        channels, height, width = image
        if self.channels not in (None, channels):
            word = "force_color" if self.channels == 3 else "force_gray"
            raise UserError(f"{word} converts encoded images only; this one is raw, {shape_text(image)}")
        if self._crop[0] > height or self._crop[1] > width:
            crop = (
                f"crop_size {self._crop[0]}" if self._crop[0] == self._crop[1] else f"the crop {shape_text(self._crop)}"
            )
            raise UserError(f"{crop} is larger than the image {shape_text(image)}")
        if self._mean is not None:
            check_mean(self._mean, image, self._mean_file)
        if len(self._mean_values) not in (0, 1, channels):
            times = (
                f"once, or once for each of the {channels} channels" if channels != 1 else "once for the one channel"
            )
            raise UserError(
                f"give mean_value {times} of the image {shape_text(image)}, not {len(self._mean_values)} times"
            )
        return (channels, *self._crop) if self._crop[0] else image

    def common_shape(self, samples: Sequence[Sample]) -> Shape:
        """Return the common shape (C, h, w) of the transformed ``samples``.

        Raises:
            DataError: an image does not fit, or gets another shape than the first; the message names its key.
        """
        common: Shape = ()
        seen: set[Shape] = set()
        for sample in samples:
            if sample.image.shape in seen:
                continue
            seen.add(sample.image.shape)
            try:
                shape = self.infer(sample.image.shape)
            except UserError as error:
                raise DataError(f'record "{sample.key}": {error}') from None
            common = common or shape
            if shape != common:
                remedy = "" if self._crop[0] else "; set crop_size, or make all images of one size"
                raise DataError(
                    f'record "{sample.key}" gives {shape_text(shape)}, but "{samples[0].key}", '
                    f"the first of its batch, {shape_text(common)}{remedy}"
                )
        return common

    def __call__(self, samples: Sequence[Sample], draw: SampleDraw, out: Batch) -> None:
        """Transform ``samples``, which are those of ``draw``, into ``out`` (B, C, h, w).

        ``(C, h, w)`` is their ``common_shape``.
        """
        size = out.shape[2:]
        tops, lefts = self.offsets(samples, draw)
        flips = self.flips(draw)
        images = [sample.image for sample in samples]
        kinds = {image.dtype for image in images}
        # Converting all gathered pixels at once is far cheaper than arithmetic image by image.
        pixels = np.empty(out.shape, kinds.pop() if len(kinds) == 1 else np.float32)
        for target, image, top, left, flip in zip(pixels, images, tops, lefts, flips, strict=True):
            target[...] = _window(image, top, left, size, flip)
        with np.errstate(over="ignore", invalid="ignore"):  # data of floats may have any; as in Caffe
            self._normalise(pixels, out, tops, lefts, flips)

    def _normalise(
        self,
        pixels: NDArray[np.generic],
        out: Batch,
        tops: Sequence[int],
        lefts: Sequence[int],
        flips: Sequence[int],
    ) -> None:
        """Subtract the mean from ``pixels``, scale them, and write them into ``out``."""
        size = out.shape[2:]
        if self._mean is not None:
            for target, top, left, flip in zip(out, tops, lefts, flips, strict=True):
                target[...] = _window(self._mean, top, left, size, flip)
            np.subtract(pixels, out, out=out)
        elif len(self._mean_values):
            mean = self._mean_values[:, np.newaxis, np.newaxis]
            for target, image in zip(
                out, pixels, strict=True
            ):  # in steps, and in the cache; at once it takes 1.4 times
                target[...] = image
                target -= mean
        else:
            out[...] = pixels
        if self._scale != 1:
            out *= self._scale

    def offsets(self, samples: Sequence[Sample], draw: SampleDraw) -> tuple[list[int], list[int]]:
        """Return the upper left corner of each sample's crop."""
        if not self._crop[0]:
            return [0] * len(samples), [0] * len(samples)
        room = np.array([sample.image.shape[1:] for sample in samples], np.int64).reshape(-1, 2) - self._crop
        if not self._at_random:
            return (room[:, 0] // 2).tolist(), (room[:, 1] // 2).tolist()
        tops = below(room[:, 0] + 1, draw.hashes(self._seed, "crop top"))
        lefts = below(room[:, 1] + 1, draw.hashes(self._seed, "crop left"))
        return tops.tolist(), lefts.tolist()

    def flips(self, draw: SampleDraw) -> list[int]:
        """Return 1 for each sample that is mirrored, and 0 for the others."""
        if not self._mirror:
            return [0] * len(draw.samples)
        flips: list[int] = below(2, draw.hashes(self._seed, "mirror")).tolist()
        return flips

    def mean_colour(self, channels: int) -> NDArray[np.float32]:
        """Return the mean of each channel, which for a mean image is the average over its pixels; 0 without a mean."""
        if self._mean is not None:
            colour: NDArray[np.float32] = self._mean.mean((1, 2))
            return colour
        return np.resize(self._mean_values if len(self._mean_values) else np.zeros(1, np.float32), channels)


def _window(image: NDArray[np.generic], top: int, left: int, size: Sequence[int], flip: int) -> NDArray[np.generic]:
    window = image[:, top : top + size[0], left : left + size[1]]
    return window[:, :, ::-1] if flip else window
