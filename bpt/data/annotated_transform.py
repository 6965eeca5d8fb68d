"""Transforms of images and their objects for detection nets (SSD's Caffe: AnnotatedDataLayer)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.base.errors import DataError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import AnnotatedSample, Objects
from bpt.data.batch_samplers import check_sampler, sampled_part
from bpt.data.distortion import Distortion
from bpt.data.noise import Noise
from bpt.data.object_boxes import WHOLE, Box, cut, mirrored
from bpt.data.resizing import Resizing
from bpt.data.sample_draws import SampleDraws
from bpt.data.sampler import SampleDraw
from bpt.data.source import Image, Sample
from bpt.data.transform import Batch, Transform
from bpt.graph.layer_spec import Shape

_LEAST_EXPANSION = 1.01


class AnnotatedTransform:
    """The augmentation of images with objects, in the order of SSD's Caffe.

    The steps are: distort the colours, put the image into a larger one, cut out a part that the ``samplers`` draw,
    resize the part, add noise, and last Transform's crop, mirror, mean and scale. The objects' boxes follow the image.
    ``emit_constraint`` selects the boxes that stay when a part is cut out.

    Random choices depend only on (``seed``, epoch, sample).

    Raises:
        UserError: settings contradict each other.
        FileError: ``mean_file`` cannot be used.
    """

    def __init__(
        self, param: pb.TransformationParameter, phase: int, samplers: Sequence[pb.BatchSampler] = (), seed: int = 0
    ) -> None:
        self.last = Transform(param, phase, seed)
        self._param, self._seed, self._samplers = param, seed, samplers
        self._distortion = Distortion(param.distort_param) if param.HasField("distort_param") else None
        self._resizing = Resizing(param.resize_param) if param.HasField("resize_param") else None
        self._noise = Noise(param.noise_param) if param.HasField("noise_param") else None
        self._emit = param.emit_constraint if param.HasField("emit_constraint") else None
        self._largest = param.expand_param.max_expand_ratio if param.HasField("expand_param") else 1.0
        if self._largest < 1:
            raise UserError(f"expand_param: max_expand_ratio {self._largest:g} must be at least 1")
        for sampler in samplers:
            check_sampler(sampler)

    def infer(self, image: Shape) -> Shape:
        """Return the shape (C, h, w) of a transformed image of shape (C, H, W), if all images get one shape.

        Raises:
            UserError: the image does not fit the crop or the mean.
        """
        return self.last.infer((image[0], *self._resizing.size) if self._resizing else image)

    def prepared(self, sample: AnnotatedSample, epoch: int, index: int) -> tuple[Sample, Objects]:
        """Run all steps before Transform on sample ``index`` of the source; return the image and its objects.

        Raises:
            DataError: a step needs 8-bit pixels, and the record has others.
        """
        draws = SampleDraws(self._seed, epoch, index)
        image, objects = sample.image, sample.objects
        if self._needs_bytes and image.dtype != np.uint8:
            raise DataError(f'record "{sample.key}" has float_data; only 8-bit images are resized and distorted')
        if self._distortion:
            image = self._distortion(image, draws)  # type: ignore[arg-type]
        if self._largest >= _LEAST_EXPANSION and draws.happens(self._param.expand_param.prob):
            image, objects = self._expanded(image, objects, draws)
        if self._samplers:
            part = sampled_part(self._samplers, objects, draws)
            if part is not None:
                image, objects = _part_of(image, part), cut(objects, part, self._emit)
        if self._resizing:
            image, objects = self._resizing(image, objects, draws)  # type: ignore[arg-type]
        if self._noise:
            image = self._noise(image, draws)  # type: ignore[arg-type]
        return Sample(sample.key, image, sample.label), objects

    def __call__(
        self, samples: Sequence[Sample], objects: Sequence[Objects], draw: SampleDraw, out: Batch
    ) -> list[Objects]:
        """Transform prepared ``samples`` into ``out`` (B, C, h, w); return their objects with transformed boxes."""
        self.last(samples, draw, out)
        tops, lefts = self.last.offsets(samples, draw)
        size = out.shape[2:]
        made = []
        for sample, own, top, left, flip in zip(samples, objects, tops, lefts, self.last.flips(draw), strict=True):
            seen = cut(own, _window(sample.image.shape[1:], top, left, size), self._emit)
            made.append(mirrored(seen) if flip else seen)
        return made

    @property
    def _needs_bytes(self) -> bool:
        return bool(self._distortion or self._resizing or self._noise)

    def _expanded(self, image: Image, objects: Objects, draws: SampleDraws) -> tuple[Image, Objects]:
        """Return a larger image of the mean's colour with the image at a random place, and its objects in there."""
        ratio = draws.uniform(1, self._largest)
        channels, height, width = image.shape
        rows, columns = int(height * ratio), int(width * ratio)
        top, left = draws.below(rows - height + 1), draws.below(columns - width + 1)
        larger = np.empty((channels, rows, columns), image.dtype)
        larger[...] = self.last.mean_colour(channels)[:, None, None]
        larger[:, top : top + height, left : left + width] = image
        part = np.array((-left, -top, columns - left, rows - top)) / np.array((width, height) * 2)
        return larger, cut(objects, part.astype(np.float32), self._emit)


def _part_of(image: Image, part: Box) -> Image:
    """Return the pixels of a ``part``, at least one."""
    height, width = image.shape[1:]
    left, top, right, bottom = (part.clip(0, 1) * np.array((width, height) * 2)).astype(int).tolist()
    return image[:, min(top, height - 1) : max(bottom, top + 1), min(left, width - 1) : max(right, left + 1)]


def _window(image: Sequence[int], top: int, left: int, size: Sequence[int]) -> Box:
    """Return a window as fractions of an image."""
    height, width = image
    if tuple(image) == tuple(size):
        return WHOLE
    return np.array((left / width, top / height, (left + size[1]) / width, (top + size[0]) / height), np.float32)
