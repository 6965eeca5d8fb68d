"""``caffe.Detector``: a net that classifies windows of images, each warped to the net's input size (R-CNN)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bpt.apps.arguments import Path, checked_count, checked_image, checked_number, checked_sizes, shown
from bpt.base.errors import UserError
from bpt.caffe.classifier import transformer_of
from bpt.caffe.core import Net
from bpt.caffe.io import Images, load_image, resize_image
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.window_batches import WindowCrop
from bpt.data.window_source import ImageWindow

Array = npt.NDArray[Any]
Rows = Sequence[float]
"""A window by its first row and column and its last row and column: (ymin, xmin, ymax, xmax)."""


def _checked_window(window: Rows) -> tuple[int, int, int, int]:
    """Return the corners of a window, with fractions cut off.

    Raises:
        UserError: the window is not four numbers, is empty, or begins outside of the image.
    """
    wanted = f"a window must be four numbers (ymin, xmin, ymax, xmax), not {shown(window)}"
    try:
        places = [checked_number(place, "a place of a window") for place in window]
    except TypeError:
        raise UserError(wanted) from None
    if len(places) != 4:
        raise UserError(wanted)
    top, left, bottom, right = map(int, places)
    if min(top, left) < 0 or bottom <= top or right <= left:
        raise UserError(f"{wanted}: it is empty, or begins outside of the image")
    return top, left, bottom, right


def _checked_pairs(given: object) -> list[tuple[Path, list[Rows]]]:
    """Return the file and the windows of each image; raise a UserError if ``given`` is not a list of such pairs."""
    wanted = f"detect_windows takes a list of pairs (file, [window, ...]), not {shown(given)}"
    try:
        return [(filename, list(windows)) for filename, windows in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise UserError(wanted) from None


class Detector(Net):
    """A net in the phase TEST whose first input is a batch of square crops of images.

    Args:
        model_file, pretrained_file: the net's text, and its weights.
        mean, input_scale, raw_scale, channel_swap: see ``caffe.io.Transformer``.
        context_pad: number of pixels at each side of a crop that show the surroundings of the window, as in
            WindowData. Pixels outside of the image are filled with the mean. By default a crop is the window alone.
    """

    def __init__(
        self,
        model_file: Path,
        pretrained_file: Path,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(model_file, pb.TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the number of context pixels at each side of a crop; ``None`` and 0 mean no context."""
        if context_pad is not None:
            context_pad = checked_count(context_pad, "context_pad")
        name = self.inputs[0]
        _, channels, height, width = checked_sizes(self.blobs[name].shape, f'the extents of the input "{name}"', 4)
        if context_pad and not (height == width > 2 * context_pad):
            raise UserError(
                f'context_pad {context_pad} needs square crops of more pixels; "{name}" is {height} x {width}'
            )
        self.context_pad = context_pad or 0
        self.crop_dims = np.array([height, width, channels])
        self.crop_mean = self.transformer.deprocess(name, np.zeros((channels, height, width), np.float32))

    def crop(self, im: Array, window: Rows) -> Images:
        """Return the part of the image (height, width, channels) in a window.

        With context, the crop is warped to the size of the input.
        """
        im = checked_image(im, "crop: the image")
        top, left, bottom, right = _checked_window(window)
        if not self.context_pad:
            return np.asarray(im[top:bottom, left:right], np.float32)
        warp = WindowCrop(int(self.crop_dims[0]), self.context_pad)
        at = warp.place(ImageWindow(0, 0, left, top, right, bottom), im.shape[0], im.shape[1])
        crop = np.array(self.crop_mean, np.float32)
        shown = resize_image(im[at.y1 : at.y2 + 1, at.x1 : at.x2 + 1], (at.height, at.width))
        crop[at.top : at.top + at.height, at.left : at.left + at.width] = shown
        return crop

    def detect_windows(
        self, images_windows: Iterable[tuple[str | os.PathLike[str], Iterable[Rows]]]
    ) -> list[dict[str, Any]]:
        """Return the net's first output for each window.

        Args:
            images_windows: a pair of file and windows for each image.

        Returns:
            A dict with ``filename``, ``window`` and ``prediction`` for each window.
        """
        name = self.inputs[0]
        found: list[dict[str, Any]] = []
        inputs = []
        for filename, windows in _checked_pairs(images_windows):
            image = load_image(filename)
            for window in windows:
                _checked_window(window)
                inputs.append(self.transformer.preprocess(name, self.crop(image, window)))
                found.append({"window": window, "filename": filename})
        if not found:
            return []
        batch: dict[str, Any] = {name: np.stack(inputs)}
        predictions = self.forward_all(**batch)[self.outputs[0]]
        for each, prediction in zip(found, predictions, strict=True):
            each["prediction"] = prediction.reshape(-1) if prediction.shape[1:] == (1, 1) else prediction
        return found

    def detect_selective_search(self, image_fnames: Iterable[str]) -> list[dict[str, Any]]:
        """Raise a UserError: pycaffe gets these windows from a MATLAB program, which bpt does not have."""
        raise UserError(
            "detect_selective_search needs selective_search_ijcv_with_python, a MATLAB program that is not part of "
            "bpt; find windows by another program (cv2.ximgproc has selective search) and give them to detect_windows"
        )
