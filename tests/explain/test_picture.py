"""An image's way into the net."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import from_numpy
from torch.nn import functional

from bpt.errors import FileError, UserError
from bpt.explain.model_input import Rule
from bpt.explain.picture import Picture
from bpt.proto import bpt_pb2 as pb

RAW = Rule(pb.VolumeDataParameter.RAW)
PIXELS = np.random.default_rng(6).integers(0, 256, (6, 4, 3), np.uint8)  # red, green, blue


@pytest.fixture
def image(tmp_path: Path) -> str:
    Image.fromarray(PIXELS).save(tmp_path / "image.png")
    return str(tmp_path / "image.png")


def test_colours_in_caffes_order(image: str) -> None:
    picture = Picture(image, (3, 6, 4), RAW)
    np.testing.assert_array_equal(picture.sample, PIXELS.transpose(2, 0, 1)[::-1].astype(np.float32))
    assert picture.told == f"{image}: 6×4 pixels; the net sees 6×4, intensity RAW ()"
    assert picture.where((2, 3)) == "row 2, column 3"


def test_enlarged(image: str) -> None:
    """Twice as large: a pixel's centre lies between those of two new ones."""
    picture = Picture(image, (3, 12, 8), RAW)
    bgr = from_numpy(PIXELS.transpose(2, 0, 1)[::-1].astype(np.float32))
    wanted = functional.interpolate(bgr[None], (12, 8), mode="bilinear", align_corners=False)[0]
    np.testing.assert_allclose(picture.sample, wanted.numpy(), rtol=1e-5, atol=1e-4)
    assert [at.tolist() for at in picture.positions] == [[0.5, 2.5, 4.5, 6.5, 8.5, 10.5], [0.5, 2.5, 4.5, 6.5]]


def test_shrunk_without_aliasing(tmp_path: Path) -> None:
    """Stripes of a pixel become grey."""
    stripes = np.tile(np.array([[0, 200]], np.uint8), (32, 16))
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    picture = Picture(str(tmp_path / "stripes.png"), (1, 4, 4), RAW)
    np.testing.assert_allclose(picture.sample, np.full((1, 4, 4), 100), atol=15)


def test_files(image: str, tmp_path: Path) -> None:
    heat = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)
    for channels in (1, 3):
        picture = Picture(image, (channels, 8, 8), RAW)
        picture.write(str(tmp_path / "map"), heat, (5, 3), "title")
        assert picture.outputs(str(tmp_path / "map")) == (tmp_path / "map.png",)
        with Image.open(tmp_path / "map.png") as written:
            assert min(written.size) > 500


def test_what_is_no_image(image: str, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(FileError, match=re.escape("text.png: 4 bytes that are no image file")):
        Picture(str(tmp_path / "text.png"), (1, 4, 4), RAW)
    with pytest.raises(FileError, match="no such file"):
        Picture(str(tmp_path / "none.png"), (1, 4, 4), RAW)
    with pytest.raises(UserError, match=re.escape("has 2 channels; an image has 1 (grey) or 3 (colour)")):
        Picture(image, (2, 4, 4), RAW)
