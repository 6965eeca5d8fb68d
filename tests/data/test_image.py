"""decode_image: Caffe's order of channels, conversions, and files that are no images."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from bpt.data.image import decode_image
from bpt.errors import DataError

RGB = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [10, 20, 30]]], np.uint8)  # H, W, C


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, "PNG")
    return file.getvalue()


def test_color_comes_blue_first() -> None:
    decoded = decode_image(png(RGB))
    assert decoded.tolist() == [  # planes of blue, green, red
        [[0, 0], [255, 30]],
        [[0, 255], [0, 20]],
        [[255, 0], [0, 10]],
    ]


def test_alpha_stays_last() -> None:
    pixels = np.array([[[1, 2, 3, 4]]], np.uint8)
    assert decode_image(png(pixels)).ravel().tolist() == [3, 2, 1, 4]


def test_gray_keeps_one_channel_unless_color_is_asked_for() -> None:
    gray = np.array([[7, 200]], np.uint8)
    assert decode_image(png(gray)).tolist() == [[[7, 200]]]
    assert decode_image(png(gray), 3).tolist() == [[[7, 200]]] * 3


def test_color_to_gray() -> None:
    # 0.299 R + 0.587 G + 0.114 B: 76.2, 149.7, 29.1 and 2.99 + 11.74 + 3.42 = 18.15
    assert decode_image(png(RGB), 1).tolist() == [[[76, 150], [29, 18]]]


def test_palette_is_color() -> None:
    pure = RGB[:1]  # red and green, which every palette has
    np.testing.assert_array_equal(decode_image(png(pure, "P")), decode_image(png(pure)))


def test_sixteen_bits_are_refused() -> None:
    with pytest.raises(DataError, match="only 8 bits a channel"):
        decode_image(png(np.array([[1000]], np.uint16)))


def test_damaged_file() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    with pytest.raises(DataError, match="a damaged image file"):
        decode_image(png(noise)[:2000])
