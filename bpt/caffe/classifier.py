"""``caffe.Classifier``: a net that classifies images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bpt.apps.arguments import Path, checked_images, checked_sizes
from bpt.caffe.core import Net
from bpt.caffe.io import Images, Transformer, oversample, resize_image
from bpt.config.proto import bpt_pb2 as pb

Array = npt.NDArray[Any]


def transformer_of(
    net: Net,
    mean: Array | None,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: Sequence[int] | None,
) -> Transformer:
    """Return the Transformer that turns images (height, width, channels) into the net's first input."""
    name = net.inputs[0]
    transformer = Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


class Classifier(Net):
    """A net in the phase TEST whose first input is a batch of images.

    Args:
        model_file, pretrained_file: the net's text, and its weights.
        image_dims: height and width to which images are resized before they are cropped; by default the input's own.
        mean, input_scale, raw_scale, channel_swap: see ``caffe.io.Transformer``.
    """

    def __init__(
        self,
        model_file: Path,
        pretrained_file: Path,
        image_dims: Sequence[int] | None = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, pb.TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        if image_dims is None:
            self.image_dims = self.crop_dims
        else:
            self.image_dims = np.array(checked_sizes(image_dims, "image_dims: height and width", 2, least=1))

    def predict(self, inputs: Iterable[Array], oversample: bool = True) -> Images:
        """Return the net's first output for each image.

        Args:
            inputs: images as ``caffe.io.load_image`` returns them.
            oversample: average over ten crops of each image: corners, centre, and their mirror images. If False, use
                the centre crop only.

        Returns:
            (images, classes).
        """
        name = self.inputs[0]
        channels = self.blobs[name].shape[1] if len(self.blobs[name].shape) > 1 else None
        images = [resize_image(image, self.image_dims) for image in checked_images(inputs, "predict: inputs", channels)]
        crops = _ten(images, self.crop_dims) if oversample else [self._centre(image) for image in images]
        batch: dict[str, Any] = {name: np.stack([self.transformer.preprocess(name, crop) for crop in crops])}
        found = self.forward_all(**batch)[self.outputs[0]]
        return np.asarray(found.reshape(len(images), -1, *found.shape[1:]).mean(axis=1), np.float32)

    def _centre(self, image: Images) -> Images:
        top, left = (self.image_dims - self.crop_dims) // 2
        return image[top : top + self.crop_dims[0], left : left + self.crop_dims[1]]


_ten = oversample  # the argument ``oversample`` of ``predict`` hides the function's own name
