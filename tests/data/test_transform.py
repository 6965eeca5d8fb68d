"""Transformation of images, and mean images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from bpt.base.errors import DataError, FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import write_binary
from bpt.data.sampler import SampleDraw
from bpt.data.source import Sample
from bpt.data.transform import Transform, mean_image, read_mean, write_mean
from tests.support.paths import GOLDEN

CONTENTS = dict(np.load(GOLDEN / "lmdb" / "lmdb_contents.npz"))


@pytest.mark.parametrize("name", ["digits_train", "color"])
def test_mean_is_caffes_to_the_byte(name: str, tmp_path: Path) -> None:
    theirs = GOLDEN / "lmdb" / f"{name}_mean.binaryproto"
    write_mean(tmp_path / "mean", mean_image(CONTENTS[f"{name}_lmdb/data"]))
    assert (tmp_path / "mean").read_bytes() == theirs.read_bytes()
    expected = CONTENTS[f"{name}_lmdb/data"].mean(axis=0)
    np.testing.assert_allclose(read_mean(str(theirs)), expected, rtol=1e-6)


def test_new_shape_field_is_read(tmp_path: Path) -> None:
    write_binary(tmp_path / "mean", pb.BlobProto(shape=pb.BlobShape(dim=[1, 2, 2]), data=[1, 2, 3, 4]))
    assert read_mean(str(tmp_path / "mean")).tolist() == [[[1, 2], [3, 4]]]


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (pb.BlobProto(num=2, channels=1, height=1, width=1, data=[1, 2]), r"shape \(2, 1, 1, 1\), not one image"),
        (pb.BlobProto(num=1, channels=1, height=2, width=2, data=[1, 2]), "needs 4 values, but has 2"),
    ],
)
def test_not_a_mean(blob: pb.BlobProto, message: str, tmp_path: Path) -> None:
    write_binary(tmp_path / "mean", blob)
    with pytest.raises(FileError, match=message):
        read_mean(str(tmp_path / "mean"))


def transform(text: str, phase: int = pb.TEST, seed: int = 0) -> Transform:
    return Transform(text_format.Parse(text, pb.TransformationParameter()), phase, seed)


def samples_of(images: list[np.ndarray]) -> list[Sample]:
    return [Sample(f"{index:08d}", image, 0) for index, image in enumerate(images)]


def apply(transform: Transform, images: list[np.ndarray], draw: SampleDraw | None = None) -> np.ndarray:
    samples = samples_of(images)
    draw = draw or SampleDraw(np.zeros(len(images), np.int64), np.arange(len(images)))
    out = np.full((len(images), *transform.common_shape(samples)), np.nan, np.float32)
    transform(samples, draw, out)
    return out


def test_the_mean_is_cut_where_the_image_is_and_mirrored_with_it(tmp_path: Path) -> None:
    image = np.arange(15, dtype=np.uint8).reshape(1, 3, 5)
    mean = np.zeros((1, 3, 5), np.float32)
    mean[0, 0, 1:3] = [10, 20]  # the corner of the centre crop: offset (3 - 2) // 2 = 0, (5 - 2) // 2 = 1
    write_mean(tmp_path / "mean", mean)
    text = f'crop_size: 2 scale: 2 mean_file: "{tmp_path}/mean"'
    upright = [[2.0 * (1 - 10), 2.0 * (2 - 20)], [2.0 * 6, 2.0 * 7]]
    assert apply(transform(text), [image]).tolist() == [[upright]]
    outcomes = apply(transform(f"{text} mirror: true"), [image] * 40).tolist()
    assert {str(outcome) for outcome in outcomes} == {str([upright]), str([[row[::-1] for row in upright]])}


def test_bytes_and_floats_in_one_batch() -> None:
    images: list[np.ndarray] = [np.array([[[200]]], np.uint8), np.array([[[0.25]]], np.float32)]
    assert apply(transform("mean_value: 0.5"), images).ravel().tolist() == [199.5, -0.25]


def test_random_crops_reach_every_place_and_depend_only_on_seed_epoch_and_sample() -> None:
    image = np.arange(4 * 5, dtype=np.uint8).reshape(1, 4, 5)
    random = transform("crop_size: 3 mirror: true", pb.TRAIN, seed=5)
    draw = SampleDraw(np.repeat([0, 1, 2], 100), np.tile(np.arange(100), 3))
    whole = apply(random, [image] * 300, draw)
    # 2 rows × 3 columns of corners, each upright or mirrored
    windows = [image[:, top : top + 3, left : left + 3] for top in range(2) for left in range(3)]
    possible = {window.tobytes() for window in windows} | {window[:, :, ::-1].tobytes() for window in windows}
    assert {crop.astype(np.uint8).tobytes() for crop in whole} == possible
    order = np.random.default_rng(0).permutation(300)[:50]
    again = transform("crop_size: 3 mirror: true", pb.TRAIN, seed=5)
    np.testing.assert_array_equal(
        apply(again, [image] * 50, SampleDraw(draw.epochs[order], draw.samples[order])), whole[order]
    )
    assert (whole[:100] != whole[100:200]).any()
    assert (whole != apply(transform("crop_size: 3 mirror: true", pb.TRAIN, seed=6), [image] * 300, draw)).any()


def test_images_of_different_sizes_are_cropped_to_one() -> None:
    images = [np.ones((1, 4, 6), np.uint8), np.full((1, 9, 3), 2, np.uint8)]
    assert apply(transform("crop_size: 3"), images).tolist() == [np.full((1, 3, 3), v).tolist() for v in (1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('mean_file: "mean" mean_value: 1', "give mean_file or mean_value, not both"),
        ("force_color: true force_gray: true", "set force_color or force_gray, not both"),
    ],
)
def test_contradicting_settings(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        transform(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crop_size: 3", "crop_size 3 is larger than the image 2×2×5"),
        (
            "mean_value: 1 mean_value: 2 mean_value: 3",
            "once for each of the 2 channels of the image 2×2×5, not 3 times",
        ),
        ("force_color: true", "force_color converts encoded images only; this one is raw, 2×2×5"),
    ],
)
def test_image_that_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        transform(text).infer((2, 2, 5))
    with pytest.raises(DataError, match=f'record "00000000": .*{message}'):
        apply(transform(text), [np.zeros((2, 2, 5), np.uint8)])


def test_mean_of_another_shape(tmp_path: Path) -> None:
    write_mean(tmp_path / "mean", np.zeros((3, 4, 4), np.float32))
    message = rf'the mean image is 3×4×4, the image 1×4×4: compute "{tmp_path}/mean" from these data .* give mean_value'
    with pytest.raises(UserError, match=message):
        transform(f'mean_file: "{tmp_path}/mean"').infer((1, 4, 4))


def test_images_of_different_sizes_without_a_crop() -> None:
    images = [np.zeros(shape, np.uint8) for shape in ((1, 4, 4), (1, 4, 4), (1, 4, 5))]
    message = 'record "00000002" gives 1×4×5, but "00000000", the first of its batch, 1×4×4; set crop_size'
    with pytest.raises(DataError, match=message):
        apply(transform(""), images)


def test_means_for_a_grey_image() -> None:
    with pytest.raises(UserError) as caught:
        transform("mean_value: 1 mean_value: 2").infer((1, 2, 5))
    assert str(caught.value) == "give mean_value once for the one channel of the image 1×2×5, not 2 times"
