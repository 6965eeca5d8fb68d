"""Pictures with boxes drawn around the objects in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bpt.base.atomic import atomic_path
from bpt.base.errors import FileError, UsageError, WriteError
from bpt.data.image import import_pillow
from bpt.data.image_source import read_image
from bpt.train.outer.report.style import COLOURS

_THICK = 300  # a line is one pixel wider for each of these pixels of the shorter side
_SMALLEST = 12  # smallest height of letters, in pixels


class BoxDrawing(NamedTuple):
    """A box: its text, the number that chooses its colour, and its corners (xmin, ymin, xmax, ymax) in pixels."""

    text: str
    number: int
    box: tuple[float, float, float, float]


def unique_outputs(folder: str, pictures: Sequence[str]) -> list[str]:
    """Return the path of a PNG file in ``folder`` for each of ``pictures``, and make the folder.

    A file has the name of its picture. If several pictures have the same name, the later ones get numbers.

    Raises:
        FileError: the folder cannot be made.
        UsageError: a picture would be replaced.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"the folder for pictures cannot be made: {error.strerror}") from None
    taken: set[str] = set()
    files = []
    for picture in pictures:
        stem = name = Path(picture).stem
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name)
        files.append(os.path.join(folder, f"{name}.png"))
    replaced = {os.path.realpath(picture) for picture in pictures}.intersection(map(os.path.realpath, files))
    if replaced:
        raise UsageError(f"{min(replaced)} would be replaced by the picture with boxes; give another folder")
    return files


def draw(picture: str, output: str, drawings: Sequence[BoxDrawing]) -> None:
    """Write the image file ``picture`` with boxes to ``output``, a PNG file; the first boxes are on top.

    Raises:
        DataError: the picture cannot be read.
        WriteError: the file could not be written.
    """
    pillow = import_pillow()
    from PIL import ImageDraw, ImageFont  # noqa: PLC0415  optional package

    image = pillow.fromarray(read_image(picture, 3)[::-1].transpose(1, 2, 0).copy())  # blue, green, red → RGB
    paper = ImageDraw.Draw(image)
    line = max(1, min(image.size) // _THICK + 1)
    font = ImageFont.load_default(size=max(_SMALLEST, min(image.size) // 30))
    for text, number, (xmin, ymin, xmax, ymax) in reversed(drawings):
        colour = COLOURS[number % len(COLOURS)]
        paper.rectangle((xmin, ymin, max(xmin, xmax - 1), max(ymin, ymax - 1)), outline=colour, width=line)
        left, top, right, bottom = paper.textbbox((0, 0), text, font=font)
        width, height = right - left + 2 * line, bottom - top + 2 * line
        x = max(0.0, min(xmin, image.size[0] - width))
        y = ymin - height if ymin >= height else ymin
        paper.rectangle((x, y, x + width, y + height), fill=colour)
        paper.text((x + line - left, y + line - top), text, fill="white", font=font)
    with atomic_path(output) as temporary:
        try:
            image.save(temporary, "PNG")
        except ValueError as error:
            raise WriteError(output, str(error)) from None
