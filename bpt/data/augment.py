"""Modern augmentation of 8-bit images: some steps come before crop and normalisation, others after them.

Each random number depends only on (seed, epoch, sample), so it is the same on any number of ranks and after a restart.
This also holds for the partner of a mix: the sample that is mixed draws it from the whole data set, not from its batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError, UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.colour import jitter
from bpt.data.opencv_resize import resize
from bpt.data.sampler import SampleDraw, below
from bpt.data.source import Image, Sample
from bpt.graph.layer_spec import Shape

Floats = NDArray[np.float32]
_MOST_RATIO = 1000  # largest ratio of the sides of a window
_TRIES = 10  # attempts to find a window within the image, as in torchvision
_ROUNDS = 64  # rounds of Jöhnk's method: each succeeds with probability 1/2 at α = 1, and 1/6 at α = 2, the maximum


@dataclass(frozen=True)
class Augment:
    """The settings of ``augment_param``.

    Attributes:
        param: the message with the settings.
        seed: the seed of all random numbers.
    """

    param: pb.AugmentParameter
    seed: int

    def check(self) -> None:
        """Raise a UserError if a setting is out of range, or ``num_classes`` is missing."""
        param = self.param
        for name, least, most in _LIMITS:
            value = getattr(param, name)
            if not least <= value <= most:
                raise UserError(f"augment_param: {name} is {value:g}; it must be from {least:g} to {most:g}")
        for name in ("area", "erase_area", "ratio"):
            low, high = getattr(param, f"min_{name}"), getattr(param, f"max_{name}")
            if not 0 < low <= high <= (_MOST_RATIO if name == "ratio" else 1):
                raise UserError(f"augment_param: min_{name} is {low:g} and max_{name} {high:g}; this is not a range")
        if self.mixes and param.num_classes < 2:
            raise UserError("augment_param: mixup and cutmix turn labels into distributions; set num_classes")

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others, so that labels are distributions."""
        return self.param.mixup > 0 or self.param.cutmix > 0

    def shape(self, image: Shape) -> Shape:
        """Return the shape of an image before it is cropped."""
        size = self.param.resized_crop
        return (image[0], size, size) if size else image

    def images(self, samples: Sequence[Sample], draw: SampleDraw) -> list[Sample]:
        """Return the samples of ``draw`` with images that are cropped, rotated and recoloured at random.

        Raises:
            DataError: an image has no 8-bit pixels.
        """
        return [
            sample._replace(image=self._image(sample, draws))
            for sample, draws in zip(samples, self._uniforms("image", draw, 6 + 2 * _TRIES), strict=True)
        ]

    def _image(self, sample: Sample, draws: NDArray[np.float64]) -> Image:
        param = self.param
        if sample.image.dtype != np.uint8:
            raise DataError(f'record "{sample.key}" has floating-point numbers; augment_param needs 8-bit pixels')
        image = cast(NDArray[np.uint8], sample.image)
        if param.resized_crop:
            top, left, height, width = self._window(image.shape[1:], draws[6:])
            image = resize(image[:, top : top + height, left : left + width], param.resized_crop, param.resized_crop)
        if param.mirror_vertical and draws[0] < 0.5:
            image = image[:, ::-1]
        if param.rotation:
            image = turned(image, math.radians(param.rotation * (2 * draws[1] - 1)))
        return jitter(image, param.brightness, param.contrast, param.saturation, param.hue, draws[2:6].tolist())

    def _window(self, size: Sequence[int], draws: NDArray[np.float64]) -> tuple[int, int, int, int]:
        """Return top, left, height and width of a window of random area, ratio and place, as RandomResizedCrop does."""
        height, width = size
        param = self.param
        low, high = math.log(param.min_ratio), math.log(param.max_ratio)
        for area, ratio in draws.reshape(-1, 2):
            pixels = height * width * (param.min_area + area * (param.max_area - param.min_area))
            shape = math.exp(low + ratio * (high - low))
            w, h = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
            if 0 < w <= width and 0 < h <= height:
                # The low-order digits of the area's random number choose the place.
                return int(_fine(area) * (height - h + 1)), int(_fine(ratio) * (width - w + 1)), h, w
        w, h = min(width, round(height * param.max_ratio)), min(height, round(width / param.min_ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def erase(self, data: Floats, draw: SampleDraw) -> None:
        """Set a window of each image in ``data`` (B, C, h, w) to 0, the mean, with probability ``erasing``."""
        if not self.param.erasing:
            return
        height, width = data.shape[2:]
        param = self.param
        for image, draws in zip(data, self._uniforms("erase", draw, 5), strict=True):
            if draws[0] >= param.erasing:
                continue
            area = height * width * (param.min_erase_area + draws[1] * (param.max_erase_area - param.min_erase_area))
            shape = math.exp((2 * draws[2] - 1) * math.log(10 / 3))  # torchvision's ratios: 0.3 to 3.3
            h, w = min(height, round(math.sqrt(area / shape))), min(width, round(math.sqrt(area * shape)))
            top, left = int(draws[3] * (height - h + 1)), int(draws[4] * (width - w + 1))
            image[:, top : top + h, left : left + w] = 0

    # Mixing

    def partners(self, draw: SampleDraw, size: int) -> NDArray[np.int64]:
        """Return the partner of each sample of ``draw``, from a data set of ``size`` samples."""
        return below(size, draw.hashes(self.seed, "partner"))

    def of_partners(self) -> Augment:
        """Return the augmentation of the partners, which has the same settings and other random numbers."""
        return Augment(self.param, derive_seed(self.seed, "of partners"))

    def mix(self, data: Floats, others: Floats, draw: SampleDraw) -> NDArray[np.float64]:
        """Mix ``others`` into ``data`` (B, C, h, w), the samples of ``draw``; return the remaining fraction of each.

        ``mixup`` ("mixup: Beyond Empirical Risk Minimization", Zhang et al., 2018): λ · x + (1 - λ) · x' with λ drawn
        from Beta(α, α). ``cutmix`` ("CutMix", Yun et al., 2019): a box with the fraction 1 - λ of the area comes from
        x'; the part of the box beyond the image is cut off. If both are set, each applies to half of the samples.
        """
        param, draws = self.param, self._uniforms("mix", draw, 3)
        cuts = (draws[:, 0] < 0.5) | (param.mixup == 0) if param.cutmix else np.zeros(len(data), bool)
        kept = self._betas(np.where(cuts, param.cutmix, param.mixup), draw)
        for place, (image, other) in enumerate(zip(data, others, strict=True)):
            if cuts[place]:
                kept[place] = _cut(image, other, kept[place], draws[place, 1:])
            else:
                image *= np.float32(kept[place])
                image += np.float32(1 - kept[place]) * other
        return kept

    def labels(self, own: Sequence[Sample], others: Sequence[Sample], kept: NDArray[np.float64]) -> Floats:
        """Return the distributions (B, classes) of mixed samples.

        Raises:
            DataError: a label is not a class.
        """
        classes = self.param.num_classes
        found = np.zeros((len(own), classes), np.float32)
        for row, sample, other, part in zip(found, own, others, kept, strict=True):
            for each, share in ((sample, part), (other, 1 - part)):
                if not 0 <= int(each.label) < classes:
                    raise DataError(f'record "{each.key}": label {each.label:g} is outside [0, {classes}), num_classes')
                row[int(each.label)] += share
        return found

    def _betas(self, alphas: NDArray[np.float64], draw: SampleDraw) -> NDArray[np.float64]:
        """Draw a number from Beta(alpha, alpha) for each sample, by Jöhnk's method (1964)."""
        powers = self._uniforms("beta", draw, 2 * _ROUNDS) ** (1 / alphas[:, np.newaxis])
        x, sums = powers[:, ::2], powers[:, ::2] + powers[:, 1::2]
        fits = (sums > 0) & (sums <= 1)
        first = fits.argmax(1)[:, np.newaxis]
        found = np.take_along_axis(x, first, 1) / np.take_along_axis(sums, first, 1).clip(min=1e-300)
        parts: NDArray[np.float64] = np.where(fits.any(1), found[:, 0], 0.5)
        return parts

    def _uniforms(self, what: str, draw: SampleDraw, number: int) -> NDArray[np.float64]:
        """Draw ``number`` numbers in [0, 1) for each sample: (B, number)."""
        columns = [draw.hashes(self.seed, what, i) for i in range(number)]
        uniforms: NDArray[np.float64] = (np.stack(columns, 1) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return uniforms


_LIMITS = (
    ("rotation", 0, 180), ("brightness", 0, 1), ("contrast", 0, 1), ("saturation", 0, 1), ("hue", 0, 0.5),
    ("erasing", 0, 1), ("mixup", 0, 2), ("cutmix", 0, 2),
)  # fmt: skip


def _fine(number: float) -> float:
    """Return a number in [0, 1) without its first 20 bits."""
    return number * 2**20 % 1


def _cut(image: Floats, other: Floats, part: float, place: NDArray[np.float64]) -> float:
    """Copy a box of ``other`` with 1 - ``part`` of the area into ``image``; return the remaining part."""
    height, width = image.shape[1:]
    side = math.sqrt(1 - part)
    rows, columns = (
        slice(max(0, int(at * size - side * size / 2)), min(size, int(at * size + side * size / 2)))
        for at, size in zip(place, (height, width), strict=True)
    )
    image[:, rows, columns] = other[:, rows, columns]
    kept: float = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
    return kept


def turned(image: NDArray[np.uint8], angle: float) -> NDArray[np.uint8]:
    """Rotate ``image`` (C, H, W) about its centre, counterclockwise, by bilinear interpolation.

    Pixels from beyond a border repeat the border.

    Args:
        angle: the angle in radians.
    """
    _, height, width = image.shape
    y, x = np.mgrid[:height, :width].astype(np.float32)
    y -= (height - 1) / 2
    x -= (width - 1) / 2
    cos, sin = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    source_x = (cos * x - sin * y + (width - 1) / 2).clip(0, width - 1)
    source_y = (sin * x + cos * y + (height - 1) / 2).clip(0, height - 1)
    left, top = source_x.astype(np.int64), source_y.astype(np.int64)
    right, bottom = (left + 1).clip(max=width - 1), (top + 1).clip(max=height - 1)
    dx, dy = source_x - left, source_y - top
    upper = image[:, top, left] * (1 - dx) + image[:, top, right] * dx
    lower = image[:, bottom, left] * (1 - dx) + image[:, bottom, right] * dx
    pixels: NDArray[np.uint8] = np.rint(upper * (1 - dy) + lower * dy).astype(np.uint8)
    return pixels
