"""Classifier and Detector show a net what they say, on nets whose output tells what they were shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import bpt
from bpt.base.errors import UserError
from bpt.caffe import Classifier, Detector
from tests.support.pycaffe_texts import inputs, layer, write

MEAN = "reduction_param { operation: MEAN axis: 2 }"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A net that gives the mean of each channel of what it is shown, four crops at a time, and its weights."""
    text = inputs(data=(4, 3, 2, 2)) + layer("Reduction", "data", "mean", MEAN)
    path = write(tmp_path, text)
    bpt.Net(path, bpt.TEST).save(tmp_path / "w.caffemodel")
    return path, str(tmp_path / "w.caffemodel")


def test_classifier(files: tuple[str, str]) -> None:
    images = [np.random.default_rng(seed).random((2, 4, 3)).astype(np.float32) for seed in range(3)]
    settings: dict[str, Any] = {
        "mean": np.array([1, 2, 3]),
        "raw_scale": 255,
        "channel_swap": (2, 1, 0),
        "input_scale": 0.5,
    }
    classifier = Classifier(*files, image_dims=(2, 4), **settings)
    centre = classifier.predict(images, oversample=False)
    expected = [(255 * image[:, 1:3, ::-1].mean((0, 1)) - [1, 2, 3]) / 2 for image in images]
    np.testing.assert_allclose(centre, expected, rtol=1e-4)
    ten = classifier.predict(images)  # the left and right halves twice each, the centre once, and all of it mirrored
    weights = np.array([2, 3, 3, 2]) / 10
    expected = [(255 * (image.mean(0)[:, ::-1] * weights[:, np.newaxis]).sum(0) - [1, 2, 3]) / 2 for image in images]
    np.testing.assert_allclose(ten, expected, rtol=1e-4)
    plain = Classifier(*files)
    np.testing.assert_allclose(plain.predict([np.full((8, 8, 3), 0.25)], False), [[0.25] * 3], rtol=1e-6)


def test_detector(files: tuple[str, str], tmp_path: Path) -> None:
    pixels = np.zeros((6, 6, 3), np.uint8)
    pixels[:3, :3] = [255, 0, 0]
    pixels[3:, 3:] = [0, 0, 255]
    picture = tmp_path / "picture.png"
    PIL.Image.fromarray(pixels).save(picture)
    detector = Detector(*files, channel_swap=(2, 1, 0))
    windows = [(0, 0, 3, 3), (3, 3, 6, 6), (0, 0, 6, 3)]
    found = detector.detect_windows([(picture, windows[:1]), (str(picture), windows[1:])])
    assert [each["window"] for each in found] == windows
    assert found[0]["filename"] == picture
    np.testing.assert_allclose(
        [each["prediction"] for each in found], [[0.0, 0, 1], [1.0, 0, 0], [0, 0, 0.5]], atol=1e-6
    )
    assert detector.detect_windows([]) == []
    with pytest.raises(UserError, match="a MATLAB program"):
        detector.detect_selective_search([str(picture)])


def test_context_around_a_window(tmp_path: Path) -> None:
    """As in WindowData: with 2 of 6 pixels at each side, a window of 2 x 2 is shown with what is 3 pixels from its
    middle, in Caffe's rounding 7 pixels along each axis."""
    text = inputs(data=(1, 1, 6, 6)) + layer("Power", "data", "y")
    path = write(tmp_path, text)
    bpt.Net(path, bpt.TEST).save(tmp_path / "w.caffemodel")
    detector = Detector(path, tmp_path / "w.caffemodel", mean=np.array([5.0]), raw_scale=10, context_pad=2)
    image = np.arange(64, dtype=np.float32).reshape(8, 8, 1)
    inside = 1 + (np.arange(6) + 0.5) * 7 / 6 - 0.5  # where the pixels of the crop lie in rows, and in columns
    np.testing.assert_allclose(detector.crop(image, (3, 3, 4, 4))[..., 0], np.add.outer(8 * inside, inside), rtol=1e-5)
    corner = detector.crop(image, (0, 0, 1, 1))  # of the 7 pixels 2 are outside; the 5 others take 4 of the crop
    within = (np.arange(4) + 0.5) * 5 / 4 - 0.5
    np.testing.assert_allclose(corner[2:, 2:, 0], np.add.outer(8 * within, within), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(corner[:2], 0.5)  # the mean, before raw_scale: it becomes 0
    np.testing.assert_allclose(detector.transformer.preprocess("data", corner)[0, :2], 0, atol=1e-6)
    with pytest.raises(UserError, match="context_pad 3 needs square crops"):
        detector.configure_crop(3)
