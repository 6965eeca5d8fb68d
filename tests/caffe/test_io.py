"""caffe.io: images, what is done to them, and messages; expected values are worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from bpt.base.errors import FileError, UserError
from bpt.caffe import io
from bpt.config.proto import bpt_pb2 as pb


def test_load_image(tmp_path: Path) -> None:
    pixels = np.array([[[255, 0, 51], [0, 102, 0]]], np.uint8)  # (1, 2, red green blue)
    PIL.Image.fromarray(pixels).save(tmp_path / "color.png")
    PIL.Image.fromarray(np.array([[51, 255]], np.uint8)).save(tmp_path / "gray.png")
    color = io.load_image(tmp_path / "color.png")
    assert color.dtype == np.float32
    np.testing.assert_allclose(color, [[[1, 0, 0.2], [0, 0.4, 0]]], rtol=1e-6)
    np.testing.assert_allclose(
        io.load_image(str(tmp_path / "color.png"), color=False), [[[0.2125 + 0.2 * 0.0721], [0.4 * 0.7154]]], rtol=1e-5
    )
    np.testing.assert_allclose(io.load_image(tmp_path / "gray.png"), [[[0.2] * 3, [1.0] * 3]], rtol=1e-6)
    np.testing.assert_allclose(io.load_image(tmp_path / "gray.png", False), [[[0.2], [1.0]]], rtol=1e-5)
    (tmp_path / "text.png").write_text("no picture")
    for name, why in (("text.png", "no image file"), ("none.png", "No such file")):
        with pytest.raises(FileError, match=f"{name}: .*{why}"):
            io.load_image(tmp_path / name)


def test_resize_image() -> None:
    """Between the centres of pixels, and nothing is smoothed."""
    image = np.array([[0, 4, 8, 100]], np.float32)[..., np.newaxis]
    np.testing.assert_allclose(io.resize_image(image, (1, 2))[0, :, 0], [2, 54])
    np.testing.assert_allclose(io.resize_image(image, (2, 8))[1, :, 0], [0, 1, 3, 5, 7, 31, 77, 100])
    np.testing.assert_allclose(io.resize_image(image, (1, 2), interp_order=0)[0, :, 0], [4, 100])
    five = np.random.default_rng(0).random((3, 4, 5))
    assert io.resize_image(five, (6, 2), 3).shape == (6, 2, 5)
    with pytest.raises(UserError, match="interp_order is 0"):
        io.resize_image(five, (6, 2), 7)


def test_oversample() -> None:
    image = np.arange(20.0).reshape(4, 5, 1)
    crops = io.oversample([image, image + 100], (2, 3))
    assert crops.shape == (20, 2, 3, 1)
    assert crops.dtype == np.float32
    assert crops[:5, 0, 0, 0].tolist() == [0, 2, 10, 12, 6]  # upper corners, lower corners, centre
    np.testing.assert_array_equal(crops[5:10], crops[:5, :, ::-1])
    np.testing.assert_array_equal(crops[10:], crops[:10] + 100)
    with pytest.raises(UserError, match="crops of 5 x 3 do not fit"):
        io.oversample([image], (5, 3))


class TestTransformer:
    def made(self) -> io.Transformer:
        """As in Caffe's classification example."""
        transformer = io.Transformer({"data": (10, 3, 2, 2)})
        transformer.set_transpose("data", (2, 0, 1))
        transformer.set_channel_swap("data", (2, 1, 0))
        transformer.set_raw_scale("data", 255)
        transformer.set_mean("data", np.array([10, 20, 30]))
        transformer.set_input_scale("data", 0.5)
        return transformer

    def test_preprocess_and_back(self) -> None:
        image = np.random.default_rng(0).random((2, 2, 3)).astype(np.float32)
        made = self.made().preprocess("data", image)
        expected = np.stack([(255 * image[..., c] - mean) / 2 for c, mean in ((2, 10), (1, 20), (0, 30))])
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(self.made().deprocess("data", made[np.newaxis]), image, rtol=1e-5, atol=1e-6)
        original = image.copy()
        self.made().preprocess("data", image)
        np.testing.assert_array_equal(image, original)

    def test_another_size_and_nothing_set(self) -> None:
        plain = io.Transformer({"x": (1, 2, 2, 1)})
        plain.set_transpose("x", (2, 0, 1))
        image = np.arange(8.0).reshape(4, 1, 2)
        np.testing.assert_allclose(plain.preprocess("x", image), [[[1], [5]], [[2], [6]]])

    def test_an_order_that_is_not_its_own_inverse(self) -> None:
        turned = io.Transformer({"x": (1, 2, 3, 4)})
        turned.set_transpose("x", (2, 0, 1))
        turned.set_channel_swap("x", (1, 0))
        image = np.random.default_rng(1).random((3, 4, 2)).astype(np.float32)
        np.testing.assert_array_equal(turned.deprocess("x", turned.preprocess("x", image)), image)

    def test_means(self) -> None:
        transformer = io.Transformer({"x": (1, 1, 2, 2)})
        transformer.set_transpose("x", (2, 0, 1))
        transformer.set_mean("x", np.array([[1, 1], [5, 5]]))
        assert transformer.preprocess("x", np.full((2, 2, 1), 7)).tolist() == [[[6, 6], [2, 2]]]
        transformer.set_mean("x", np.array([[[1.0], [3], [5], [7]]]))  # of 4 x 1 pixels, brought to 2 x 2
        assert transformer.mean["x"].tolist() == [[[2, 2], [6, 6]]]

    @pytest.mark.parametrize(
        ("call", "why"),
        [
            (lambda t: t.set_mean("data", np.zeros(4)), "3 channels, and the mean is of 4"),
            (lambda t: t.set_mean("data", np.zeros((2, 2, 2))), "takes no mean of shape"),
            (lambda t: t.set_transpose("data", (0, 1)), "must name each axis"),
            (lambda t: t.set_channel_swap("data", (1, 2, 3)), "must name each of its channels"),
            (lambda t: t.set_raw_scale("image", 255), '"image" is not an input of this Transformer .data.'),
        ],
    )
    def test_mistakes(self, call: Callable[[Any], object], why: str) -> None:
        with pytest.raises(UserError, match=why):
            call(self.made())


def test_datums() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    datum = io.array_to_datum(pixels, label=7)
    assert (datum.channels, datum.height, datum.width, datum.label) == (1, 3, 4, 7)
    assert datum.data == bytes(range(12))
    np.testing.assert_array_equal(io.datum_to_array(pb.Datum.FromString(datum.SerializeToString())), pixels)
    numbers = np.random.default_rng(0).random((2, 2, 3))
    without = io.array_to_datum(numbers)
    assert not without.HasField("label")
    assert not io.array_to_datum(pixels).HasField("label")
    np.testing.assert_allclose(io.datum_to_array(without), numbers, rtol=1e-6)
    with pytest.raises(UserError, match=r"not one of shape \(2,\)"):
        io.array_to_datum(np.zeros(2))


def test_blobs() -> None:
    array = np.arange(6.0).reshape(2, 3)
    blob = io.array_to_blobproto(array, diff=-array)
    assert list(blob.shape.dim) == [2, 3]
    np.testing.assert_array_equal(io.blobproto_to_array(blob), array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob, return_diff=True), -array)
    old = pb.BlobProto(num=1, channels=1, height=2, width=3, data=array.ravel())
    assert io.blobproto_to_array(old).shape == (1, 1, 2, 3)
    assert io.blobproto_to_array(pb.BlobProto(data=[123])) == 123
    with pytest.raises(ValueError, match="has 6"):
        io.blobproto_to_array(pb.BlobProto(data=array.ravel()))
    both = io.blobprotovector_str_to_arraylist(io.arraylist_to_blobprotovector_str([array, array[0]]))
    assert [each.shape for each in both] == [(2, 3), (3,)]
