"""Resizes images and their objects' boxes by SSD's ``resize_param``."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, Objects
from bpt.data.image import Pixels, import_pillow
from bpt.data.opencv_resize import resize
from bpt.data.sample_draws import SampleDraws

P = pb.ResizeParameter
_PADDING = {P.CONSTANT: "constant", P.MIRRORED: "reflect", P.REPEAT_NEAREST: "edge"}


class Resizing:
    """The resizing of an image by ``resize_param``.

    WARP resizes to height × width. FIT_SMALL_SIZE keeps the image's proportions, and the result covers height × width.
    FIT_LARGE_SIZE_AND_PAD keeps the proportions within height × width, and pads the rest at both sides.

    One of the ``interp_mode`` values is drawn for each image. LINEAR and NEAREST equal OpenCV's to the last bit, and
    CUBIC up to rounding. AREA is the mean over the pixels that become one. LANCZOS4 is Pillow's, which smooths an image
    that shrinks.

    Raises:
        UserError: height or width is missing.
    """

    def __init__(self, param: pb.ResizeParameter) -> None:
        if not param.height or not param.width:
            raise UserError("resize_param needs height and width")
        self._param = param
        self.is_fixed = param.resize_mode != P.FIT_SMALL_SIZE and param.prob >= 1
        self.size = (param.height, param.width)

    def __str__(self) -> str:
        """Return the resizing in words, such as "resized to 300×300"."""
        height, width = self.size
        how = {P.WARP: "to", P.FIT_SMALL_SIZE: "to cover", P.FIT_LARGE_SIZE_AND_PAD: "and padded to"}
        return f"resized {how[self._param.resize_mode]} {height}×{width}"

    def __call__(self, image: Pixels, objects: Objects, draws: SampleDraws) -> tuple[Pixels, Objects]:
        """Resize ``image`` (C, H, W) and its ``objects`` with probability ``prob``."""
        param = self._param
        if not draws.happens(param.prob):
            return image, objects
        modes = param.interp_mode
        mode = modes[draws.below(len(modes))] if modes else P.LINEAR
        height, width, top, left = self._place(*image.shape[1:])
        resized = _resized(image, height, width, mode)
        if param.resize_mode != P.FIT_LARGE_SIZE_AND_PAD:
            return resized, objects
        around = (top, param.height - height - top), (left, param.width - width - left)
        placed = objects.copy()
        size, corner, whole = (
            np.array(pair * 2, np.float32) for pair in ((width, height), (left, top), (param.width, param.height))
        )
        placed[:, BOX] = (objects[:, BOX] * size + corner) / whole
        return self._padded(resized, around), placed

    def _place(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return height and width of the resized image, and its first row and column in the padded image."""
        param = self._param
        if param.resize_mode == P.WARP:
            return param.height, param.width, 0, 0
        scales = param.height / height, param.width / width
        if param.resize_mode == P.FIT_SMALL_SIZE:
            scale = max(scales)
            return max(param.height, int(height * scale)), max(param.width, int(width * scale)), 0, 0
        scale = min(scales)
        new = max(1, min(param.height, int(height * scale))), max(1, min(param.width, int(width * scale)))
        return *new, (param.height - new[0]) // 2, (param.width - new[1]) // 2

    def _padded(self, image: Pixels, around: tuple[tuple[int, int], tuple[int, int]]) -> Pixels:
        param = self._param
        if param.pad_mode != P.CONSTANT:
            return np.pad(image, ((0, 0), *around), mode=_PADDING[param.pad_mode])  # type: ignore[call-overload,no-any-return]
        values = np.array(param.pad_value or [0], np.float32)
        if len(values) not in (1, len(image)):
            raise UserError(f"give pad_value once, or once for each of {len(image)} channels")
        (top, below), (left, right) = around
        _, height, width = image.shape
        padded = np.empty((len(image), top + height + below, left + width + right), image.dtype)
        padded[...] = values[:, None, None]
        padded[:, top : top + height, left : left + width] = image
        return padded


def _resized(image: Pixels, height: int, width: int, mode: int) -> Pixels:
    if mode == P.LINEAR or image.shape[1:] == (height, width):
        return resize(image, height, width)
    if mode == P.NEAREST:
        rows, columns = (
            (np.arange(new) * (old / new)).astype(np.int64)
            for new, old in zip((height, width), image.shape[1:], strict=True)
        )
        return image[:, rows[:, None], columns]
    if mode == P.CUBIC:
        pixels = torch.from_numpy(np.ascontiguousarray(image))[None].float()
        new = functional.interpolate(pixels, (height, width), mode="bicubic", align_corners=False)
        return new[0].round_().clamp_(0, 255).byte().numpy()
    pillow = import_pillow()
    kind = pillow.Resampling.BOX if mode == P.AREA else pillow.Resampling.LANCZOS
    planes = [pillow.fromarray(np.ascontiguousarray(plane)).resize((width, height), kind) for plane in image]
    stacked: NDArray[np.uint8] = np.stack([np.asarray(plane) for plane in planes])
    return stacked
