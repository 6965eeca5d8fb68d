"""The input of torchvision's networks, made of Caffe's: the record of the preprocessing, and the first convolution.

torchvision takes ``(x / 255 - mean) / deviation`` of red, green and blue, with numbers for each channel. A record of
bpt subtracts a mean from each channel of blue, green and red, and multiplies all by one ``scale``. So the first
convolution takes the rest: the order of its channels is reversed, and its weights for a channel are multiplied by
``1 / (255 · deviation · scale)``.

This is exact, at the borders, too. A convolution pads its bottom with zeros; in both cases the mean is subtracted
before, so that a zero is the mean, and a factor does not change it. The ``scale`` is near the mean of the factors.
Thus the weights are almost those of torchvision, and a learning rate that suits PyTorch suits them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import FloatArray

_WHITE = 255  # largest number of a pixel
CROP = 224
RESIZED = 256
"""Pixels of the shorter side before the crop, for most of torchvision's weights."""
RESIZED_BY_FILE = {"resnet50-11ad3fa6": 232, "resnet101-cd907fc2": 232, "resnet152-f82ba261": 232}
"""The same for weights of other recipes (IMAGENET1K_V2), by the names of torchvision's files."""


@dataclass(frozen=True)
class InputScaling:
    """How pixels become the input of a network.

    Attributes:
        mean: what is subtracted from red, green and blue in the range from 0 to 1.
        deviation: what they are then divided by.
        scale: the part of the division that the record contains, for pixels from 0 to 255.
    """

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    scale: float

    @property
    def mean_values(self) -> list[float]:
        """The mean of blue, green and red, in the range from 0 to 255."""
        return [round(_WHITE * mean, 6) for mean in reversed(self.mean)]

    def record(self, resized: int) -> pb.ImagePreprocessing:
        """Return the record for images whose shorter side is ``resized`` before the crop in the centre."""
        record = pb.ImagePreprocessing(channels=len(self.mean))
        transform = record.transform_param
        resize = transform.resize_param
        resize.resize_mode = pb.ResizeParameter.FIT_SMALL_SIZE
        resize.height = resize.width = resized
        # torchvision has Pillow's LINEAR, which smooths where an image shrinks; this is the nearest to it.
        resize.interp_mode.append(pb.ResizeParameter.LANCZOS4)
        transform.crop_size = CROP
        transform.mean_value.extend(self.mean_values)
        transform.scale = self.scale
        return record

    def adapt(self, weights: FloatArray) -> FloatArray:
        """Return the weights of a first convolution (outputs, RGB, height, width) for the record's input, which is BGR.

        The computation is in double precision and rounded once.
        """
        factors = 1 / (_WHITE * np.array(self.deviation, np.float64) * self.scale)
        adapted: FloatArray = (weights * factors[:, None, None])[:, ::-1].astype(np.float32)
        return adapted


IMAGENET = InputScaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 0.0175)
HALF = InputScaling((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 2 / _WHITE)
"""GoogLeNet's: pixels from -1 to 1."""
