"""Pixels of Pillow's images, shared or copied."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from bpt.data.image import decode_image
from bpt.data.pillow_pixels import pixels_of


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 3), (333, 127)])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_pixels_are_those_of_a_copy(mode: str, size: tuple[int, int]) -> None:
    image = picture(*size, mode)
    pixels = pixels_of(image)
    np.testing.assert_array_equal(pixels, np.asarray(image))
    assert not pixels.flags.writeable


def test_an_image_of_several_blocks_is_copied() -> None:
    image = picture(2500, 1800)  # 18 MB, and Pillow's blocks have 16 MiB
    np.testing.assert_array_equal(pixels_of(image), np.asarray(image))


def test_pixels_outlive_their_image() -> None:
    image = picture(300, 200)
    wanted = np.array(image)
    window = pixels_of(image)[50:, 40:]
    image.close()
    del image
    others = [picture(300, 200).rotate(180) for _ in range(20)]  # would take its memory if that were free
    np.testing.assert_array_equal(window, wanted[50:, 40:])
    assert len(others) == 20


def test_a_file_is_decoded_at_first_use() -> None:
    file = io.BytesIO()
    picture(50, 40).save(file, "JPEG")
    with Image.open(file) as image:
        pixels = pixels_of(image)
    with Image.open(file) as image:
        np.testing.assert_array_equal(pixels, np.asarray(image))
    np.testing.assert_array_equal(decode_image(file.getvalue(), 3), pixels.transpose(2, 0, 1)[::-1])
