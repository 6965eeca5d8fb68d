"""Transform: what is done to images before the net sees them (Caffe: DataTransformer); mean images and their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, DataError, FileError, UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_binary, write_binary
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.config.proto.fields import without
from bpt.data.finite import all_finite
from bpt.data.sampler import SampleDraw, below, hash_samples
from bpt.data.source import Image, Sample
from bpt.graph.layer_spec import Shape


def read_mean(path: str, frames: int = 0) -> NDArray[np.float32]:
    """Return the mean image (C, H, W) in the file ``path``, as Caffe's compute_image_mean writes it.

    Args:
        frames: of a clip, to each of which an image belongs: (C · frames, H, W), as of the file of a clip's mean, (1,
            C, frames, H, W); 0: there are pictures.

    Raises:
        FileError: missing, not a BlobProto, or not one image, nor one clip.
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
        raise FileError(path, "holds NaN or infinity: no pixel that it is subtracted from would be finite")
    return mean


def check_mean(mean: NDArray[np.float32], image: Shape, path: str) -> None:
    """Raise a UserError unless the ``mean`` in the file ``path`` is of the shape of an ``image`` (C, H, W)."""
    if mean.shape != image:
        raise UserError(
            f"the mean image is {_show(mean.shape)}, the image {_show(image)}: compute "
            f'"{path}" of these data (bpt convert mean), or give mean_value instead'
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
    """``(x - mean) * scale`` on a crop, perhaps mirrored, as a TransformationParameter says.

    The crop is at random in TRAIN, in the centre (rounded up and left) in TEST; the mean image is cut at
    the same place. ``mirror`` flips at random in both phases. Random choices depend only on
    (``seed``, epoch, sample).

    Args:
        frames: images are clips, with so many frames of each colour one below the other; 0: they are pictures.

    Raises:
        UserError: settings that contradict each other.
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
        """Return the same with other draws."""
        other = copy(self)
        other._seed = seed
        return other

    def __str__(self) -> str:
        """Return what is done to an image of a test, in words."""
        values = ", ".join(f"{value:g}" for value in self._mean_values.tolist())
        done = [
            f"cropped to {_show(self._crop)}" if self._crop[0] else "",
            f"less the mean image {self._mean_file}" if self._mean is not None else "",
            f"less {values}" if values else "",
            f"times {self._scale:g}" if self._scale != 1 else "",
        ]
        return ", ".join(filter(None, done)) or "as it is"

    def infer(self, image: Shape) -> Shape:
        """Return the shape (C, h, w) that an image of shape (C, H, W) gets.

        Raises:
            UserError: the image does not fit the crop or the mean.
        """
        channels, height, width = image
        if self.channels not in (None, channels):
            word = "force_color" if self.channels == 3 else "force_gray"
            raise UserError(f"{word} converts encoded images only; this one is raw, {_show(image)}")
        if self._crop[0] > height or self._crop[1] > width:
            crop = f"crop_size {self._crop[0]}" if self._crop[0] == self._crop[1] else f"the crop {_show(self._crop)}"
            raise UserError(f"{crop} is larger than the image {_show(image)}")
        if self._mean is not None:
            check_mean(self._mean, image, self._mean_file)
        if len(self._mean_values) not in (0, 1, channels):
            times = (
                f"once, or once for each of the {channels} channels" if channels != 1 else "once for the one channel"
            )
            raise UserError(f"give mean_value {times} of the image {_show(image)}, not {len(self._mean_values)} times")
        return (channels, *self._crop) if self._crop[0] else image

    def common_shape(self, samples: Sequence[Sample]) -> Shape:
        """Return the one shape (C, h, w) that all ``samples`` get.

        Raises:
            DataError: an image does not fit, or gets another shape than the first; names its key.
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
                    f'record "{sample.key}" gives {_show(shape)}, but "{samples[0].key}", '
                    f"the first of its batch, {_show(common)}{remedy}"
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
        # Gathered as they are, then converted all at once: far cheaper than arithmetic image by image.
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
        """Subtract the mean from ``pixels``, and scale, into ``out``."""
        size = out.shape[2:]
        if self._mean is not None:
            for target, top, left, flip in zip(out, tops, lefts, flips, strict=True):
                target[...] = _window(self._mean, top, left, size, flip)
            np.subtract(pixels, out, out=out)
        elif len(self._mean_values):
            np.subtract(pixels, self._mean_values[:, np.newaxis, np.newaxis], out=out)
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
        tops = below(room[:, 0] + 1, self._hashes("crop top", draw))
        lefts = below(room[:, 1] + 1, self._hashes("crop left", draw))
        return tops.tolist(), lefts.tolist()

    def flips(self, draw: SampleDraw) -> list[int]:
        """Return for each sample whether it is mirrored, 0 or 1."""
        if not self._mirror:
            return [0] * len(draw.samples)
        flips: list[int] = below(2, self._hashes("mirror", draw)).tolist()
        return flips

    def mean_colour(self, channels: int) -> NDArray[np.float32]:
        """Return what is subtracted from each of so many channels, of a mean image on average; 0 if nothing is."""
        if self._mean is not None:
            colour: NDArray[np.float32] = self._mean.mean((1, 2))
            return colour
        return np.resize(self._mean_values if len(self._mean_values) else np.zeros(1, np.float32), channels)

    def _hashes(self, what: str, draw: SampleDraw) -> NDArray[np.uint64]:
        return hash_samples(derive_seed(self._seed, what), draw.epochs, draw.samples)


def _window(image: NDArray[np.generic], top: int, left: int, size: Sequence[int], flip: int) -> NDArray[np.generic]:
    window = image[:, top : top + size[0], left : left + size[1]]
    return window[:, :, ::-1] if flip else window


def _show(shape: Shape) -> str:
    return "×".join(map(str, shape))
