"""Images decoded."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from bpt.base.errors import DataError
from bpt.data.image import decode_image

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
    # 0.299 R + 0.587 G + 0.114 B, truncated: 76.2, 149.7, 29.1 and 2.99 + 11.74 + 3.42 = 18.15
    assert decode_image(png(RGB), 1).tolist() == [[[76, 149], [29, 18]]]


def test_palette_is_color() -> None:
    pure = RGB[:1]  # red and green, which every palette has
    np.testing.assert_array_equal(decode_image(png(pure, "P")), decode_image(png(pure)))


def png_of_16(*rows: list[tuple[int, ...]], turned: int = 1) -> bytes:
    """A PNG of 16 bits a channel: rows of pixels of 1 to 4 samples."""
    color = {1: 0, 2: 4, 3: 2, 4: 6}[len(rows[0][0])]
    exif = Image.Exif()
    exif[0x0112] = turned
    data = b"".join(b"\0" + np.array(row, ">u2").tobytes() for row in rows)
    chunks = (
        b"IHDR" + struct.pack(">IIBBBBB", len(rows[0]), len(rows), 16, color, 0, 0, 0),
        b"eXIf" + exif.tobytes().removeprefix(b"Exif\0\0"),
        b"IDAT" + zlib.compress(data),
        b"IEND",
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


class TestSixteenBits:
    """OpenCV has libpng keep the upper byte of each sample, and libpng makes gray of color before it does."""

    def test_gray(self) -> None:
        content = png_of_16([(0,), (255,), (256,)], [(0x1234,), (0x12FF,), (65535,)])
        expected = [[0, 0, 1], [0x12, 0x12, 255]]
        assert decode_image(content).tolist() == [expected]
        assert decode_image(content, 1).tolist() == [expected]
        assert decode_image(content, 3).tolist() == [expected] * 3

    def test_gray_with_alpha(self) -> None:
        content = png_of_16([(0x12FF, 0x5678), (65535, 0)])
        assert decode_image(content).tolist() == [[[0x12, 255]]] * 3 + [[[0x56, 0]]]
        assert decode_image(content, 1).tolist() == [[[0x12, 255]]]
        assert decode_image(content, 3).tolist() == [[[0x12, 255]]] * 3

    @pytest.mark.parametrize("alpha", [(), (0x0480,)])
    def test_color(self, alpha: tuple[int, ...]) -> None:
        content = png_of_16([(0x01FF, 0x02FF, 0x0380, *alpha)])
        assert decode_image(content).ravel().tolist() == [3, 2, 1, 4][: 3 + len(alpha)]
        assert decode_image(content, 3).ravel().tolist() == [3, 2, 1]

    @pytest.mark.parametrize("alpha", [(), (0,)])
    @pytest.mark.parametrize(
        ("color", "gray"),
        [
            # (9797 · 0x1FF + 19234 · 0x2FF + 3737 · 0x3FF) / 32768 = 719.7 = 2.81 · 256; of 1, 2, 3 it were 1.8
            ((0x01FF, 0x02FF, 0x03FF), 2),
            # 256 - 3737 / 32768 = 255.89, which is rounded to 256
            ((256, 256, 255), 1),
            # 256 - 19234 / 32768 = 255.41
            ((256, 255, 256), 0),
            ((65535, 65535, 65535), 255),
        ],
    )
    def test_color_to_gray(self, color: tuple[int, ...], gray: int, alpha: tuple[int, ...]) -> None:
        assert decode_image(png_of_16([(*color, *alpha)]), 1).tolist() == [[[gray]]]

    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("samples", [1, 3, 4])
    def test_they_are_turned_upright(self, samples: int, channels: int) -> None:
        row = [(value << 8,) * samples for value in (1, 2)]
        assert decode_image(png_of_16(row, turned=6), channels).tolist() == [[[1], [2]]] * channels
        assert decode_image(png_of_16(row, turned=3), channels).tolist() == [[[2, 1]]] * channels

    def test_a_tiff(self) -> None:
        file = io.BytesIO()
        Image.fromarray(np.array([[1000]], np.uint16)).save(file, "TIFF")
        assert decode_image(file.getvalue()).tolist() == [[[1000 >> 8]]]

    @pytest.mark.parametrize("order", ["<", ">"])
    def test_a_tiff_in_color(self, order: str) -> None:
        """libtiff rounds 16 bits of color, where Pillow takes the upper bytes."""
        tags = {256: 1, 257: 1, 258: 122, 259: 1, 262: 2, 273: 128, 277: 3, 278: 1, 279: 6}
        entries = []
        for tag, value in tags.items():
            long = tag == 258  # an offset; the others are at the start of their four bytes
            entries.append(struct.pack(f"{order}HHI" + ("I" if long else "HH"), tag, 3, 3 if long else 1,
                                       *((value,) if long else (value, 0))))  # fmt: skip
        content = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(tags))
        content += b"".join(entries) + bytes(4)
        content += struct.pack(f"{order}6H", 16, 16, 16, 256, 700, 65535)  # at 122: bits of each channel, then a pixel
        expected = [255, 3, 1]  # 65535 / 257, 700 / 257 = 2.7, 256 / 257
        assert decode_image(content, 3).ravel().tolist() == expected
        assert decode_image(content, 1).tolist() == [[[(255 * 1868 + 3 * 9617 + 1 * 4899 + 2**13) >> 14]]]

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"P6 1 1 65535 \1\2\3\4\5\6", [5, 3, 1]),
            (b"P6 1 1 256 \1\0\0\7\0\0", [0, 0, 1]),
            (b"P3 1 1 256 256 2 3 ", [0, 0, 1]),
            (b"P5 1 1 300 \1\1", [1, 1, 1]),
            (b"P5\n# made by hand\n1 1\n300\n\1\1", [1, 1, 1]),
        ],
    )
    def test_a_ppm(self, content: bytes, expected: list[int]) -> None:
        """It is not scaled by its largest value."""
        assert decode_image(content, 3).ravel().tolist() == expected

    @pytest.mark.parametrize("content", [b"P6 1 1 65535 \1\2\3\4\5", b"P3 1 1 256 1 2", b"P3 1 1 100 1 x 2"])
    def test_a_damaged_ppm(self, content: bytes) -> None:
        with pytest.raises(DataError, match="a damaged image file"):
            decode_image(content, 3)

    @pytest.mark.parametrize("content", [b"P6 1 1 255 \1\2\3", b"P3 1 1 255 1 2 3 "])
    def test_a_ppm_of_eight(self, content: bytes) -> None:
        assert decode_image(content).ravel().tolist() == [3, 2, 1]
        assert decode_image(content.replace(b"255", b"100")).ravel().tolist() == [3, 2, 1]
        assert decode_image(b"P5 1 1 255 \7").tolist() == [[[7]]]
        assert decode_image(b"P4 1 1 \0").tolist() == [[[255]]]

    @pytest.mark.parametrize("header", [True, False])
    def test_a_jpeg_2000_in_color_is_refused(self, header: bool) -> None:
        file = io.BytesIO()
        Image.fromarray(RGB).save(file, "JPEG2000", no_jp2=not header)
        content = bytearray(file.getvalue())
        np.testing.assert_array_equal(decode_image(bytes(content)), RGB.transpose(2, 0, 1)[::-1])
        bits = content.index(b"\xff\x4f\xff\x51") + 42  # of the first channel, less 1
        assert content[bits : bits + 9 : 3] == b"\7\7\7"
        content[bits + 6] = 11
        with Image.open(io.BytesIO(content)) as image:
            assert image.mode == "RGB"
        with pytest.raises(DataError, match=r"^a JPEG2000 of 12 bits a channel"):
            decode_image(bytes(content), 3)

    def test_a_jpeg_2000_in_gray(self) -> None:
        file = io.BytesIO()
        Image.fromarray(np.array([[1000]], np.uint16)).save(file, "JPEG2000")
        assert decode_image(file.getvalue()).tolist() == [[[1000 >> 8]]]


def test_damaged_file() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    with pytest.raises(DataError, match="a damaged image file"):
        decode_image(png(noise)[:2000])


def jpeg(pixels: np.ndarray, orientation: int = 1, quality: int = 95) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", exif=exif, quality=quality)
    return file.getvalue()


def test_gray_of_a_jpeg_is_its_own() -> None:
    """A JPEG has a plane of gray, of which OpenCV makes no colors first."""
    pixels = np.random.default_rng(2).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    content = jpeg(pixels)
    with Image.open(io.BytesIO(content)) as image:
        image.draft("YCbCr", image.size)
        own = np.asarray(image.convert("YCbCr"))[:, :, 0]
    np.testing.assert_array_equal(decode_image(content, 1)[0], own)


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (6, -1), (3, 2), (8, 1)])
def test_photos_are_turned_upright_if_they_are_converted(orientation: int, turns: int) -> None:
    pixels = np.zeros((8, 16), np.uint8)
    pixels[:4, :8] = 255
    content = jpeg(pixels, orientation, 100)
    for channels in (1, 3):
        decoded = decode_image(content, channels)
        assert decoded.shape[0] == channels
        np.testing.assert_array_equal(decoded[0] > 128, np.rot90(pixels, turns) > 128)
    np.testing.assert_array_equal(decode_image(content)[0] > 128, pixels > 128)  # as it is, as Caffe


@pytest.mark.parametrize(
    "content", [b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"\x89PNG\r\n\x1a\n" + b"\0" * 30]
)
def test_no_image_file(content: bytes) -> None:
    """Not even those for which Pillow would run another program."""
    with pytest.raises(DataError, match=r"no image file|damaged|an empty file"):
        decode_image(content)


@pytest.mark.parametrize("most", [1, 3])
def test_an_image_that_would_not_fit_into_memory(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow only warns of up to twice as many pixels."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    with pytest.raises(DataError, match=f"^an image of more than {most} pixels, the most that are decoded$"):
        decode_image(png(RGB))


def test_damaged_tags_are_no_warning() -> None:
    """Fuzzing: Pillow warns of a TIFF whose tags reach beyond its end."""
    file = io.BytesIO()
    Image.fromarray(RGB).save(file, "TIFF")
    content = bytearray(file.getvalue())
    tag = content.index(b"\x1c\x01\x03\x00")  # 284, how planes are stored, and its number of values
    content[tag + 4 : tag + 8] = b"\xff\xff\x00\x00"
    np.testing.assert_array_equal(decode_image(bytes(content)), RGB.transpose(2, 0, 1)[::-1])


def test_a_header_that_promises_too_much() -> None:
    """5,000 × 5,000 pixels, of which a few bytes follow: no memory is taken for them."""
    content = bytearray(png(RGB))
    content[16:24] = (5_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    with pytest.raises(DataError, match=r"says that it has 5000 × 5000 pixels, in \d+ bytes"):
        decode_image(bytes(content))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_damaged_files_of_any_kind_are_told(form: str) -> None:
    """Bytes changed, cut out and cut off: an image or a DataError comes of it, never anything else."""
    generator = np.random.default_rng(8)
    file = io.BytesIO()
    Image.fromarray(generator.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(file, form)
    for number in range(150):
        content = bytearray(file.getvalue())
        for place in generator.integers(0, len(content), 1 + number % 4):
            content[place] = generator.integers(0, 256)
        if number % 3 == 1:
            del content[generator.integers(0, len(content)) :]
        elif number % 3 == 2:
            start, end = np.sort(generator.integers(0, len(content), 2))
            del content[start:end]
        with contextlib.suppress(DataError):
            image = decode_image(bytes(content), (None, 1, 3)[number % 3])
            assert image.dtype == np.uint8
            assert image.ndim == 3
