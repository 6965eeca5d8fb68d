"""Image files of all kinds become the pixels that OpenCV's imread gives; those of load_image are scikit-image's."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bpt.base.errors import DataError
from bpt.caffe.io import load_image
from bpt.data.image import decode_image


def _recorded() -> dict[str, NDArray[np.uint8]]:
    with np.load(Path(__file__).parent / "recordings" / "opencv.npz") as stored:
        names, shapes, data = (stored[name] for name in ("names", "shapes", "data"))
    found, at = {}, 0
    for name, shape in zip(names.tolist(), shapes.tolist(), strict=True):
        sizes = [size for size in shape if size]
        count = int(np.prod(sizes))
        found[name] = data[at : at + count].reshape(sizes)
        at += count
    return found


RECORDED = _recorded()
FILES = [name.removeprefix("file ") for name in RECORDED if name.startswith("file ")]
OTHERWISE = {"transparent.gif": "has the colour of the palette", "gray.ras": "OpenCV's gray of it is wrong"}
"""Files of which bpt makes other pixels, as docs/data.md says, and why."""
REFUSED = ("float.tif", "float255.tif", "int32.tif", "rgb_float.tif")


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name", [name for name in FILES if name not in (*OTHERWISE, *REFUSED)])
def test_pixels_are_those_of_opencv(name: str, channels: int) -> None:
    expected = RECORDED[f"{channels} {name}"]
    planes = expected.transpose(2, 0, 1) if channels == 3 else expected[np.newaxis]
    np.testing.assert_array_equal(decode_image(RECORDED[f"file {name}"].tobytes(), channels), planes)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name", REFUSED)
def test_what_opencv_does_not_read_is_refused(name: str, channels: int) -> None:
    assert f"{channels} {name}" not in RECORDED
    with pytest.raises(DataError):
        decode_image(RECORDED[f"file {name}"].tobytes(), channels)


def test_a_gif_keeps_the_colours_of_its_palette() -> None:
    content = RECORDED["file transparent.gif"].tobytes()
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))[..., ::-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(decode_image(content, 3), expected)
    np.testing.assert_array_equal(
        decode_image(RECORDED["file gray.ras"].tobytes(), 1)[0], RECORDED["3 gray.ras"][..., 0]
    )


def png_of_16(rows: NDArray[np.uint16]) -> bytes:
    """Return a PNG of (H, W) or (H, W, 3) with 16 bits a channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = rows.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 16, 2 if rows.ndim == 3 else 0, 0, 0, 0)
    data = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def tiff_of_16(rows: NDArray[np.uint16]) -> bytes:
    """Return a TIFF of (H, W, 3) with 16 bits a channel: a header, the pixels, then the directory."""
    height, width = rows.shape[:2]
    data = rows.astype("<u2").tobytes()
    bits = 8 + len(data)
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, bits), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 8),
            (277, 3, 1, 3), (278, 3, 1, height), (279, 4, 1, len(data)), (284, 3, 1, 1)]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    return b"II*\0" + struct.pack("<I", bits + 6) + data + struct.pack("<3H", 16, 16, 16) + directory


class TestLoadImage:
    """``caffe.io.load_image``: scikit-image's ``img_as_float(imread(…))``, which leaves files as they lie there."""

    pixels = np.random.default_rng(5).integers(0, 256, (4, 5, 3), dtype=np.uint8)

    def test_sixteen_bits_are_scaled(self, tmp_path: Path) -> None:
        gray = np.array([[0, 1000], [65535, 257]], np.uint16)
        (tmp_path / "g.png").write_bytes(png_of_16(gray))
        expected = np.repeat((gray / 65535)[..., np.newaxis], 3, 2)
        np.testing.assert_allclose(load_image(tmp_path / "g.png"), expected, rtol=1e-6)
        color = np.random.default_rng(6).integers(0, 65536, (2, 3, 3), dtype=np.uint16)
        (tmp_path / "c.png").write_bytes(png_of_16(color))
        np.testing.assert_allclose(load_image(tmp_path / "c.png"), color / 65535, rtol=1e-6)
        Image.fromarray(gray).save(tmp_path / "g.tif")
        np.testing.assert_allclose(load_image(tmp_path / "g.tif"), expected, rtol=1e-6)

    def test_an_exif_tag_turns_nothing(self, tmp_path: Path) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(self.pixels).save(tmp_path / "a.png", exif=exif)
        np.testing.assert_allclose(load_image(tmp_path / "a.png"), self.pixels / 255, rtol=1e-6)

    @pytest.mark.parametrize("mode", ["RGB", "L", "F", "I;16"])
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_the_tag_of_a_tiff_turns_nothing(self, tmp_path: Path, orientation: int, mode: str) -> None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = {"RGB": self.pixels, "L": self.pixels[..., 0]}.get(mode)
        if stored is None:
            stored = self.pixels[..., 0].astype(np.float32 if mode == "F" else np.uint16)
        Image.fromarray(stored).save(tmp_path / "a.tif", exif=exif)
        largest = {"F": 1, "I;16": 65535}.get(mode, 255)
        expected = stored / largest if mode == "RGB" else np.repeat((stored / largest)[..., np.newaxis], 3, 2)
        np.testing.assert_allclose(load_image(tmp_path / "a.tif"), expected, rtol=1e-6)

    def test_a_color_tiff_of_sixteen_bits_is_scaled(self, tmp_path: Path) -> None:
        color = np.random.default_rng(7).integers(0, 65536, (2, 3, 3), dtype=np.uint16)
        (tmp_path / "c.tif").write_bytes(tiff_of_16(color))
        np.testing.assert_allclose(load_image(tmp_path / "c.tif"), color / 65535, rtol=1e-6)

    @pytest.mark.parametrize("form", ["png", "tif", "webp"])
    def test_alpha_is_dropped(self, tmp_path: Path, form: str) -> None:
        alpha = np.full((4, 5, 1), 100, np.uint8)
        lossless: dict[str, Any] = {"lossless": True, "exact": True} if form == "webp" else {}
        Image.fromarray(np.concatenate([self.pixels, alpha], 2)).save(tmp_path / f"a.{form}", **lossless)
        np.testing.assert_allclose(load_image(tmp_path / f"a.{form}"), self.pixels / 255, rtol=1e-6)

    def test_gray_is_repeated(self, tmp_path: Path) -> None:
        Image.fromarray(self.pixels[..., 0]).save(tmp_path / "a.png")
        expected = np.repeat(self.pixels[..., :1] / 255, 3, 2)
        np.testing.assert_allclose(load_image(tmp_path / "a.png"), expected, rtol=1e-6)
        assert load_image(tmp_path / "a.png", color=False).shape == (4, 5, 1)

    def test_floats_stay(self, tmp_path: Path) -> None:
        values = np.array([[-0.5, 0.25], [1.5, 1]], np.float32)
        Image.fromarray(values).save(tmp_path / "a.tif")
        np.testing.assert_array_equal(load_image(tmp_path / "a.tif"), np.repeat(values[..., np.newaxis], 3, 2))
