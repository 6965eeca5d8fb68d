"""WindowCrop: context, squares and borders, worked by hand from Caffe's rule."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.base.errors import DataError
from bpt.data.opencv_resize import resize
from bpt.data.window_batches import WindowCrop
from bpt.data.window_source import ImageWindow

IMAGE = np.random.default_rng(1).integers(0, 256, (3, 20, 30), dtype=np.uint8)


def window(x1: int, y1: int, x2: int, y2: int) -> ImageWindow:
    return ImageWindow(0, 1, x1, y1, x2, y2)


def test_a_window_of_the_crops_size() -> None:
    pixels, top, left = WindowCrop(4)(IMAGE, window(5, 6, 8, 9), False)
    assert (top, left) == (0, 0)
    np.testing.assert_array_equal(pixels, IMAGE[:, 6:10, 5:9])
    np.testing.assert_array_equal(WindowCrop(4)(IMAGE, window(5, 6, 8, 9), True).pixels, IMAGE[:, 6:10, 8:4:-1])


def test_warped_to_a_square() -> None:
    """2 rows of 8 columns become 4 × 4: halved along x (means of two pixels), doubled along y."""
    flat = np.tile(np.arange(0, 240, 8, dtype=np.uint8), (3, 20, 1))
    pixels, _, _ = WindowCrop(4)(flat, window(0, 3, 7, 4), False)
    np.testing.assert_array_equal(pixels, np.tile(np.array([4, 20, 36, 52], np.uint8), (3, 4, 1)))


def test_context() -> None:
    """The window of 4 × 4 at (10, 8) with a pixel of context in a crop of 6.

    Its centre is (12, 10), the half of a side 2, and 2 · 6 / 4 = 3: from 9 to 15 and from 7 to 13, 7 pixels, as Caffe
    counts; they are warped to 6.
    """
    pixels, top, left = WindowCrop(6, 1)(IMAGE, window(10, 8, 13, 11), False)
    assert (top, left) == (0, 0)
    np.testing.assert_array_equal(pixels, resize(IMAGE[:, 7:14, 9:16], 6, 6))


def test_context_beyond_the_image() -> None:
    """The window of 8 × 8 in the corner, with 4 pixels of context in a crop of 16.

    Its centre is (4, 4), the half of a side 4, and 4 · 16 / 8 = 8: from -4 to 12, 17 pixels, 4 of them outside. The 13
    inside get round(13 · 16 / 17) = round(12.24) = 12 pixels, and round(4 · 16 / 17) = round(3.76) = 4 stay empty.
    """
    pixels, top, left = WindowCrop(16, 4)(IMAGE, window(0, 0, 7, 7), False)
    assert (top, left) == (4, 4)
    np.testing.assert_array_equal(pixels, resize(IMAGE[:, :13, :13], 12, 12))
    flipped, top, left = WindowCrop(16, 4)(IMAGE, window(0, 0, 7, 7), True)
    assert (top, left) == (4, 0)  # what is empty is on the other side, where nothing was
    np.testing.assert_array_equal(flipped, pixels[:, :, ::-1])


def test_context_beyond_the_right_and_the_bottom() -> None:
    """The window of 8 × 8 in the other corner: centre (26, 16), from 18 to 34 and from 8 to 24.

    Of 17 columns 18 to 29 are there, 12: round(12 · 16 / 17) = round(11.29) = 11; and as many rows.
    """
    pixels, top, left = WindowCrop(16, 4)(IMAGE, window(22, 12, 29, 19), False)
    assert (top, left) == (0, 0)
    np.testing.assert_array_equal(pixels, resize(IMAGE[:, 8:20, 18:30], 11, 11))
    # 5 columns are missing: round(5 · 16 / 17) = round(4.7) = 5, in front if it is flipped.
    assert WindowCrop(16, 4)(IMAGE, window(22, 12, 29, 19), True).left == 5


def test_square() -> None:
    """The window of 3 columns and 7 rows at (10, 5): centre (11.5, 8.5), half of a side 3.5: from 8 to 15, 5 to 12."""
    pixels, top, left = WindowCrop(8, square=True)(IMAGE, window(10, 5, 12, 11), False)
    assert (top, left) == (0, 0)
    np.testing.assert_array_equal(pixels, IMAGE[:, 5:13, 8:16])
    wide, _, _ = WindowCrop(5, square=True)(IMAGE, window(8, 9, 14, 11), False)
    # Centre (11.5, 10.5), half of a side 3.5: from 8 to 15 and from 7 to 14.
    np.testing.assert_array_equal(wide, resize(IMAGE[:, 7:15, 8:16], 5, 5))


def test_filled_and_empty_pixels_never_exceed_the_crop() -> None:
    generator = np.random.default_rng(6)
    for _ in range(300):
        size = int(generator.integers(3, 12))
        pad = int(generator.integers(0, (size + 1) // 2))
        x, y = np.sort(generator.integers(0, 30, 2)), np.sort(generator.integers(0, 20, 2))
        crop = WindowCrop(size, pad, square=bool(generator.integers(2)))
        pixels, top, left = crop(IMAGE, window(int(x[0]), int(y[0]), int(x[1]), int(y[1])), bool(generator.integers(2)))
        assert top + pixels.shape[1] <= size
        assert left + pixels.shape[2] <= size
        assert min(top, left) >= 0


@pytest.mark.parametrize("box", [(0, 0, 30, 5), (0, 0, 5, 20), (-1, 0, 5, 5), (6, 0, 5, 5), (0, 6, 5, 5)])
def test_windows_that_are_not_in_the_image(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(DataError, match=rf"the window {' '.join(map(str, box))} .* not in the image of 30 × 20 pixels"):
        WindowCrop(4)(IMAGE, window(*box), False)


@pytest.mark.parametrize("box", [(100, 0, 110, 5), (0, -90, 5, -80), (6, 0, -9, 5)])
def test_windows_whose_context_is_not_in_the_image(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(DataError, match="not in the image of 30 × 20 pixels"):
        WindowCrop(8, 1)(IMAGE, window(*box), False)
