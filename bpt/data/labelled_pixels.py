"""Images with a label for each pixel: their source, transforms of image and labels, and batches of them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.errors import DataError, FileError, UserError, excerpt
from bpt.data.batches import Batches, empty
from bpt.data.damaged_samples import NumberedSource
from bpt.data.image import Pixels, import_pillow
from bpt.data.image_source import read_image
from bpt.data.opencv_resize import resize
from bpt.data.prefetch import Workers
from bpt.data.sampler import SampleDraw, Sampler, below
from bpt.data.source import a_few, ends_of, listed_lines, slash_hint
from bpt.data.transform import check_mean, read_mean
from bpt.graph.layer_spec import Shape
from bpt.graph.share import Share


class LabelsOf(enum.Enum):
    """The kind of labels in a list, after the path of an image."""

    NOTHING = "nothing"
    IMAGE = "a class"
    PIXELS = "the path of an image of labels"
    EDGES = "the path of an image of edges"


class Labelled(NamedTuple):
    """An image (C, H, W) and the labels of its pixels (1, H, W)."""

    key: str
    image: Pixels
    labels: Pixels


class LabelledSource:
    """The images and labels in the list ``path``, one image a line.

    Args:
        root_folder: the prefix of each path, joined without a slash.
        size: (height, width) to which both are resized; ``()`` keeps their size. Labels take the nearest pixel. Edges
            are interpolated like the image, and become 1 from one half on.
        channels: number of channels of the images, 1 or 3.
        ignore_label: the label of images without labels.

    Raises:
        FileError: the list is missing, or a line does not have the form of ``labels``.
    """

    def __init__(
        self,
        path: str,
        labels: LabelsOf,
        *,
        root_folder: str = "",
        size: Shape = (),
        channels: int = 3,
        ignore_label: int = 255,
    ) -> None:
        import_pillow()
        self.path = path
        self._labels, self._root_folder, self._size, self._channels = labels, root_folder, size, channels
        self._ignore_label = ignore_label
        self._entries: list[tuple[str, str, int]] = []
        for number, line in listed_lines(path, "that lists images", "lists no images; write a line for each"):
            words = line.split()
            wanted = 1 if labels is LabelsOf.NOTHING else 2
            if len(words) < wanted:
                raise FileError(f"{path}:{number}", f'"{excerpt(line)}" needs the path of an image and {labels.value}')
            if labels is LabelsOf.IMAGE and not (words[1].isdecimal() and len(words[1]) < 4 and int(words[1]) < 256):
                raise FileError(f"{path}:{number}", f'the label "{excerpt(words[1])}" is not an integer in 0 ... 255')
            self._entries.append((words[0], words[1] if wanted == 2 else "", number))

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, index: int) -> Labelled:
        """Return image ``index`` with its labels; any thread may call this.

        Raises:
            DataError: a file cannot be used; the message names list, line and file.
        """
        name, label, number = self._entries[index]
        image = self._file(name, self._channels, number)
        if self._labels in (LabelsOf.PIXELS, LabelsOf.EDGES):
            labels = self._file(label, 1, number)
            if labels.shape[1:] != image.shape[1:]:
                sizes = " and ".join(f"{shape[2]} × {shape[1]}" for shape in (image.shape, labels.shape))
                raise DataError(f"{self.path}:{number}: image and labels are of {sizes} pixels; they must agree")
        else:
            value = int(label) if label else self._ignore_label
            labels = np.full((1, *image.shape[1:]), value, np.uint8)
        if self._size:
            image = resize(image, *self._size)
            labels = resize(labels, *self._size) if self._labels is LabelsOf.EDGES else nearest(labels, *self._size)
        return Labelled(name, image, (labels > 127).astype(np.uint8) if self._labels is LabelsOf.EDGES else labels)

    def _file(self, name: str, channels: int, number: int) -> Pixels:
        try:
            return read_image(self._root_folder + name, channels)
        except DataError as error:
            raise DataError(f"{self.path}:{number}: {error}{slash_hint(self._root_folder, name)}") from None

    def glance(self) -> Iterator[bytes]:
        for index in a_few(len(self)):
            yield ends_of(self._root_folder + self._entries[index][0])

    def close(self) -> None:
        """Do nothing: no file stays open."""


def nearest(image: Pixels, height: int, width: int) -> Pixels:
    """Resize ``image`` (C, H, W) to (C, ``height``, ``width``) by the pixel at the upper left, as OpenCV does."""
    rows, columns = (
        np.minimum((np.arange(new) * (old / new)).astype(np.int64), old - 1)
        for old, new in zip(image.shape[1:], (height, width), strict=True)
    )
    picked: Pixels = image[:, rows[:, np.newaxis], columns]
    return picked


class PixelTransform:
    """Normalises images by ``(x - mean) · scale``, and crops and mirrors images and labels together.

    Args:
        mean_values: no values, one value, or one for each channel.
        crop: (height, width); ``()``: the whole image.
        at_random: whether the crop is at random; if not, it is in the centre (rounded up and left).
        pad: label for the padding of images smaller than the crop, which get means at the right and below; ``None``
            refuses such images.
        mirror: whether half of the samples are flipped left to right.
        mean_file: file of a mean image with the size of the images, instead of values; "": none.
    """

    def __init__(
        self,
        mean_values: Sequence[float],
        scale: float,
        crop: Shape,
        *,
        at_random: bool,
        mirror: bool,
        seed: int,
        pad: int | None = None,
        mean_file: str = "",
    ) -> None:
        if not np.isfinite([scale, *mean_values]).all():
            raise UserError("scale and mean_value must be finite")
        if mean_file and mean_values:
            raise UserError("give mean_file or mean_value, not both")
        self._means = np.array(mean_values or [0], np.float32)[:, np.newaxis, np.newaxis]
        self._mean, self._mean_file = read_mean(mean_file) if mean_file else None, mean_file
        self._scale = np.float32(scale)
        self._crop, self._at_random, self._mirror, self._seed, self._pad = crop, at_random, mirror, seed, pad

    def infer(self, image: Shape) -> Shape:
        """Return the shape (C, h, w) of a transformed image (C, H, W).

        Raises:
            UserError: the image does not fit the crop or the mean.
        """
        if self._mean is not None:
            check_mean(self._mean, image, self._mean_file)
        if len(self._means) not in (1, image[0]):
            raise UserError(f"give mean_value once, or once for each of the {image[0]} channels")
        if not self._crop:
            return image
        if (self._pad is None or self._mean is not None) and (self._crop[0] > image[1] or self._crop[1] > image[2]):
            raise UserError(
                f"the crop, {self._crop[1]} × {self._crop[0]}, is larger than the image, {image[2]} × {image[1]}"
            )
        return (image[0], *self._crop)

    def __call__(
        self, sample: Labelled, draw: SampleDraw, data: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> None:
        """Write one sample, with its ``draw``, into ``data`` (C, h, w) and ``labels`` (1, h, w)."""
        height, width = data.shape[1:]
        room = np.maximum(np.array(sample.image.shape[1:]) - (height, width), 0)
        top, left = room // 2
        if self._at_random:
            top, left = (
                int(below(np.array([most + 1]), draw.hashes(self._seed, what))[0])
                for most, what in zip(room, ("crop top", "crop left"), strict=True)
            )
        window = np.s_[:, top : top + height, left : left + width]
        flip = bool(self._mirror and below(2, draw.hashes(self._seed, "mirror"))[0])
        inside = np.s_[:, : min(height, sample.image.shape[1]), : min(width, sample.image.shape[2])]
        data[...] = self._means
        data[inside] = sample.image[window]
        data -= self._means if self._mean is None else self._mean[window]
        if self._scale != 1:
            data *= self._scale
        labels[...] = self._pad or 0
        labels[inside] = sample.labels[window]
        if flip:
            data[...], labels[...] = data[:, :, ::-1].copy(), labels[:, :, ::-1].copy()


class LabelledBatches(Batches[NumberedSource[Labelled]]):
    """Batches of (data (B, C, h, w), labels (B, 1, h, w), sizes (B, 1, 1, 2)).

    All images of a batch must get one shape. Sizes are height and width of each image without its padding.
    """

    def __init__(
        self,
        source: NumberedSource[Labelled],
        sampler: Sampler,
        transform: PixelTransform,
        share: Share,
        workers: Workers,
    ) -> None:
        super().__init__(source, sampler, share, workers)
        self._transform = transform

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        tasks: list[Callable[[], Labelled]] = [partial(self._source.read, index) for index in draw.samples.tolist()]
        samples = self._workers.run(tasks)
        shapes = {self._shape(sample) for sample in samples or [self._source.read(0)]}
        if len(shapes) > 1:
            raise DataError(
                f"{self._source.path}: images of a batch have the shapes {sorted(shapes)}; give a size or a crop, or "
                "batch_size: 1"
            )
        (shape,) = shapes
        data, labels = empty(len(samples), *shape), empty(len(samples), 1, *shape[1:])
        sizes = empty(len(samples), 1, 1, 2)
        self._workers.run(
            partial(self._transform, sample, SampleDraw(draw.epochs[i : i + 1], draw.samples[i : i + 1]), *arrays)
            for i, (sample, *arrays) in enumerate(zip(samples, data.numpy(), labels.numpy(), strict=True))
        )
        for row, sample in zip(sizes.numpy(), samples, strict=True):
            row[0, 0] = np.minimum(sample.image.shape[1:], shape[1:])
        return data, labels, sizes

    def _shape(self, sample: Labelled) -> Shape:
        try:
            return self._transform.infer(sample.image.shape)
        except UserError as error:
            raise DataError(f"{self._source.path}: {sample.key}: {error}") from None
