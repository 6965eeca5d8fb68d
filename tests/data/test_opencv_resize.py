"""Images resized as OpenCV does."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from bpt.data.image_source import read_image
from bpt.data.opencv_resize import resize
from tests.support.paths import GOLDEN

RECORDED = np.load(GOLDEN / "data" / "data.npz")
CASES = json.loads((GOLDEN / "data" / "convert_imageset.json").read_text())


@pytest.mark.parametrize("kind", ["gray", "resize"])
def test_what_convert_imageset_wrote(kind: str) -> None:
    """Both OpenCV's gray and its bilinear resizing, which Pillow's filter of that name is not."""
    records = next(case for case in CASES if case["name"] == kind)["records"]
    for record in records:
        image = read_image(str(GOLDEN / "data" / record["key"].split("_", 1)[1]), record["channels"])
        wanted = RECORDED[f"conv_{kind}/{record['key'].replace('/', '_')}"]
        np.testing.assert_array_equal(resize(image, record["height"], record["width"]), wanted)


def test_between_the_centres_of_pixels() -> None:
    """Two pixels become four: the outer ones lie beyond the centres, the others a quarter of the way in."""
    row = np.array([[[100, 200]]], np.uint8)
    assert resize(row, 1, 4).tolist() == [[[100, 125, 175, 200]]]
    assert resize(row.transpose(0, 2, 1), 4, 1).ravel().tolist() == [100, 125, 175, 200]


def test_shrinking_does_not_smooth() -> None:
    """Of 8 pixels in 2: new centres at 1.5 and 5.5, so that half of the pixels count nothing."""
    row = np.array([[[9, 10, 20, 9, 9, 40, 60, 9]]], np.uint8)
    assert resize(row, 1, 2).tolist() == [[[15, 50]]]


@pytest.mark.parametrize("size", [(7, 5), (3, 19), (1, 1), (40, 31), (13, 11)])
def test_near_exact_interpolation(size: tuple[int, int]) -> None:
    image = np.random.default_rng(3).integers(0, 256, (2, 13, 11), dtype=np.uint8)

    def weights(old: int, new: int) -> np.ndarray:
        matrix = np.zeros((new, old))
        for row in range(new):
            at = Fraction(2 * row + 1, 2) * Fraction(old, new) - Fraction(1, 2)
            at = min(max(at, Fraction(0)), Fraction(old - 1))
            before = int(at)
            matrix[row, before] += float(1 - (at - before))
            matrix[row, min(before + 1, old - 1)] += float(at - before)
        return matrix

    exact = weights(13, size[0]) @ image @ weights(11, size[1]).T
    resized = resize(image, *size)
    assert resized.dtype == np.uint8
    assert np.abs(resized - exact).max() <= 1


def test_views_and_images_of_one_size() -> None:
    image = np.random.default_rng(3).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    view = image[:, ::-1, ::-1].transpose(2, 0, 1)
    assert not view.flags.c_contiguous
    np.testing.assert_array_equal(resize(view, 9, 4), resize(view.copy(), 9, 4))
    assert resize(view, 6, 8) is view
    flat = np.full((1, 5, 4), 255, np.uint8)
    assert (resize(flat, 11, 9) == 255).all()


def plain(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """OpenCV's steps (imgproc/resize.cpp), written as they are there: one pixel after the other, in 64-bit integers."""
    image = image.astype(np.int64)

    def places(old: int, new: int) -> list[tuple[int, np.float32]]:
        at = [np.float32((place + 0.5) * (1 / (new / old)) - 0.5) for place in range(new)]
        return [(int(np.floor(each)), np.float32(each - np.floor(each))) for each in at]

    def weights(part: np.float32) -> tuple[int, int]:
        return int(np.rint((np.float32(1) - part) * np.float32(2048))), int(np.rint(part * np.float32(2048)))

    channels, old_height, old_width = image.shape
    wide = np.empty((channels, old_height, width), np.int64)
    for x, (left, part) in enumerate(places(old_width, width)):
        before, after = (2048, 0) if left < 0 or left >= old_width - 1 else weights(part)
        ends = (min(max(left + step, 0), old_width - 1) for step in (0, 1))
        wide[..., x] = sum(image[..., end] * weight for end, weight in zip(ends, (before, after), strict=True)) >> 4
    result = np.empty((channels, height, width), np.int64)
    for y, (top, part) in enumerate(places(old_height, height)):
        ends = (min(max(top + step, 0), old_height - 1) for step in (0, 1))
        products = [wide[:, end] * weight >> 16 for end, weight in zip(ends, weights(part), strict=True)]
        result[:, y] = sum(products) + 2 >> 2
    return result.astype(np.uint8)


def laid_out(layout: str, channels: int, height: int, width: int) -> np.ndarray:
    """An image (C, H, W) of random pixels, many of them 0 or 255, with this layout in memory."""
    generator = np.random.default_rng([channels, height, width])
    room = {"window": (height + 3, width + 5, channels + 1), "gap": (height, width, 4)}
    pixels = generator.integers(-128, 384, room.get(layout, (height, width, channels))).clip(0, 255).astype(np.uint8)
    if layout == "planar":
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if layout == "window":
        pixels = pixels[2 : 2 + height, 4 : 4 + width, :channels]
    if layout == "gap":
        pixels = pixels[..., channels - 1 :: -1]
    turned = {"reversed": (1, 1, -1), "mirrored": (1, -1, 1), "upside down": (-1, 1, -1)}.get(layout, (1, 1, 1))
    image: np.ndarray = pixels[tuple(slice(None, None, step) for step in turned)].transpose(2, 0, 1)
    return image


LAYOUTS = ("interleaved", "reversed", "gap", "window", "planar", "mirrored", "upside down")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("channels", "old", "new"),
    [
        (3, (37, 50), (25, 25)),
        (3, (40, 41), (7, 60)),  # rows that no result needs
        (3, (41, 40), (6, 13)),
        (1, (9, 13), (20, 30)),
        (1, (1, 7), (4, 3)),
        (3, (6, 1), (3, 4)),
        (2, (1, 1), (3, 2)),
        (3, (1, 5), (1, 3)),
    ],
)
def test_all_layouts_give_the_plain_steps(
    layout: str, channels: int, old: tuple[int, int], new: tuple[int, int]
) -> None:
    image = laid_out(layout, channels, *old)
    np.testing.assert_array_equal(resize(image, *new), plain(image, *new))


def test_weights_whose_sum_is_rounded() -> None:
    """The first pixel of 10923 lies 1.49995 / 2048 behind an old one: the weights are 1 and, by float32, 2046."""
    image = laid_out("interleaved", 3, 1, 10939)
    np.testing.assert_array_equal(resize(image, 2, 10923), plain(image, 2, 10923))


def test_extreme_neighbours() -> None:
    """Steps from 0 to 255 and back, at many distances: the widest numbers of all intermediate sums."""
    image = np.zeros((1, 64, 64), np.uint8)
    image[:, ::2, ::3] = 255
    for size in ((61, 59), (127, 130), (33, 31)):
        np.testing.assert_array_equal(resize(image, *size), plain(image, *size))
        np.testing.assert_array_equal(resize(255 - image, *size), plain(255 - image, *size))
