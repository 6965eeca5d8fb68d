"""resize: OpenCV's own results, arithmetic by hand, and what holds for any image."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from bpt.data.image_source import read_image
from bpt.data.resize import resize
from tests.golden_cases import GOLDEN

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
