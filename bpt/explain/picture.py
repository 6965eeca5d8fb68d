"""An image in a PNG, JPEG or other file that Pillow reads, for nets with two spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bpt.data.image import decode_image
from bpt.errors import DataError, FileError, UserError
from bpt.explain.explain_figure import Panel, draw
from bpt.explain.model_input import Rule, Sample, Subject
from bpt.graph.spec import Shape
from bpt.proto.files import UnreadableError, read_bytes

CHANNELS = (1, 3)


class Picture(Subject):
    """The image file at ``path``, as grey or colour (blue, green, red: Caffe's order), resized to the net's input.

    Args:
        path: the file.
        shape: the net's input, (channels, H, W).
        rule: what is done to the pixels' values, 0 … 255.

    Raises:
        UserError: the net takes neither 1 nor 3 channels; Pillow is missing.
        FileError: the file cannot be used.
    """

    def __init__(self, path: str, shape: Shape, rule: Rule) -> None:
        channels, *box = shape
        if channels not in CHANNELS:
            raise UserError(f"the net's input has {channels} channels; an image has 1 (grey) or 3 (colour)")
        try:
            pixels = decode_image(read_bytes(path), channels)
        except UnreadableError as error:
            raise FileError(path, str(error)) from None
        except DataError as error:
            raise FileError(path, str(error)) from None
        self._pixels = pixels
        sample = torch.from_numpy(pixels.astype(np.float32))
        if list(pixels.shape[1:]) != box:
            # Smoothed where it shrinks, as in any program that resizes images.
            sample = functional.interpolate(sample[None], tuple(box), mode="bilinear", antialias=True)[0]
        self.sample = rule(sample.numpy(), path)
        # The inverse: both grids of pixels cover the same rectangle.
        self.positions = tuple((np.arange(m) + 0.5) * n / m - 0.5 for m, n in zip(pixels.shape[1:], box, strict=True))
        height, width = pixels.shape[1:]
        self.told = f"{path}: {height}×{width} pixels; the net sees {'×'.join(map(str, box))}, {rule}"

    def outputs(self, prefix: str) -> tuple[Path, ...]:
        return (Path(f"{prefix}.png"),)

    def where(self, place: Sequence[int]) -> str:
        return f"row {place[0]}, column {place[1]}"

    def write(self, prefix: str, heat: Sample, place: Sequence[int], title: str) -> None:
        height, width = heat.shape
        red_last = self._pixels.transpose(1, 2, 0)
        panel = Panel(
            title="",
            back=red_last[..., ::-1] if red_last.shape[2] == 3 else red_last[..., 0],
            heat=heat,
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            labels=("column", "row"),
            mark=(place[1], place[0]),
            grey=(0, 255),
            origin="upper",
        )
        draw(self.outputs(prefix)[0], title, [panel])
