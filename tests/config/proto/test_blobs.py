"""Blobs and arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays

from bpt.base.errors import BptError
from bpt.config.proto import blobs
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_binary
from bpt.config.proto.blobs import array_to_blob, blob_shape, blob_to_array
from tests.support.golden_files import INPUTS
from tests.support.paths import GOLDEN


def test_recorded_weights() -> None:
    net = read_binary(GOLDEN / "snapshots" / "SGD_bn_diff" / "snap_iter_10.caffemodel", pb.NetParameter)
    blobs_read = [blob for layer in net.layer for blob in layer.blobs]
    assert len(blobs_read) >= 4
    for blob in blobs_read:
        values = blob_to_array(blob)
        assert values.dtype == np.float32
        assert values.flags.writeable
        assert values.tolist() == np.reshape(list(blob.data), values.shape).tolist()
        assert array_to_blob(values, np.reshape(list(blob.diff), values.shape)) == blob


def test_old_shape() -> None:
    mean = read_binary(INPUTS / "mean.binaryproto", pb.BlobProto)
    assert blob_to_array(mean).shape == (1, 1, 28, 28)


def test_shapes() -> None:
    assert blob_shape(pb.BlobProto()) == ()
    assert blob_shape(pb.BlobProto(shape={"dim": [2, 3]})) == (2, 3)
    assert blob_shape(pb.BlobProto(width=3)) == (0, 0, 0, 3)
    assert blob_shape(pb.BlobProto(num=1, channels=2, height=3, width=4, shape={"dim": [5]})) == (1, 2, 3, 4)


def test_scalar_and_empty() -> None:
    assert blob_to_array(pb.BlobProto(data=[3])).tolist() == 3
    assert array_to_blob(np.float32(3)) == pb.BlobProto(data=[3])
    assert blob_to_array(pb.BlobProto(shape={"dim": [0, 4]})).shape == (0, 4)
    assert array_to_blob(np.zeros((0, 4))) == pb.BlobProto(shape={"dim": [0, 4]})


def test_double_precision_is_rounded() -> None:
    blob = pb.BlobProto(shape={"dim": [2]}, double_data=[0.1, 2], double_diff=[1, 1])
    assert blob_to_array(blob).tolist() == np.array([0.1, 2], np.float32).tolist()


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (pb.BlobProto(shape={"dim": [2, 3]}, data=[1] * 5), "a blob of shape 2 x 3 needs 6 values, but has 5"),
        (pb.BlobProto(shape={"dim": [2]}), "a blob of shape 2 needs 2 values, but has 0"),
        (pb.BlobProto(data=[1, 2]), r"a blob of shape \(\) needs 1 values, but has 2"),
        (pb.BlobProto(shape={"dim": [-1, -1]}, data=[1]), "a blob has the shape -1 x -1, with a negative dimension"),
        (pb.BlobProto(num=-1, data=[1]), "negative dimension"),
        (pb.BlobProto(shape={"dim": [2**62, 2**62]}, data=[1]), "needs 21267647932558653966460912964485513216 values"),
        (pb.BlobProto(shape={"dim": [2**62, 0, 2**62]}), "which no array can have"),
        (pb.BlobProto(shape={"dim": [1] * 100}, data=[1]), "which no array can have"),
    ],
)
def test_shape_that_does_not_match(blob: pb.BlobProto, message: str) -> None:
    with pytest.raises(BptError, match=message):
        blob_to_array(blob)


def test_diff_that_does_not_match() -> None:
    with pytest.raises(BptError, match="a blob has shape 2, but its diff 1 x 2"):
        array_to_blob(np.ones(2), np.ones((1, 2)))


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_LARGEST", 39)
    assert len(array_to_blob(np.ones(9)).data) == 9
    with pytest.raises(BptError, match="a blob of shape 10 is larger than the 2 GB"):
        array_to_blob(np.ones(10))
    with pytest.raises(BptError, match="larger than the 2 GB"):
        array_to_blob(np.ones(9), np.ones(9))


def test_any_layout_of_memory() -> None:
    array = np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    assert np.array_equal(blob_to_array(array_to_blob(array)), array)
    assert np.array_equal(blob_to_array(array_to_blob(array.astype(">f8"))), array)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(arrays(np.float32, array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)))
def test_round_trip(array: np.ndarray) -> None:
    blob = array_to_blob(array)
    np.testing.assert_array_equal(blob_to_array(blob), array)
    assert blob_shape(blob) == array.shape
    assert pb.BlobProto.FromString(blob.SerializeToString()) == blob or np.isnan(array).any()


@pytest.mark.parametrize("kind", [pb.DOUBLE, pb.FLOAT, pb.FLOAT16, pb.INT, pb.UINT, pb.BOOL])
def test_raw_numbers(kind: int) -> None:
    """NVIDIA's: a run of numbers of any type as they lie in memory."""
    blob = pb.BlobProto(raw_data=np.array([[0, 1]], blobs.RAW[kind]).tobytes(), shape=pb.BlobShape(dim=[1, 2]))
    blob.raw_data_type = kind  # type: ignore[assignment]
    values = blob_to_array(blob)
    assert values.dtype == np.float32 and values.tolist() == [[0, 1]]
    blob.shape.dim[1] = 3
    words = f"needs {3 * blobs.RAW[kind].itemsize} bytes of {pb.Type.Name(blob.raw_data_type)}"
    with pytest.raises(BptError, match=words):
        blob_to_array(blob)


@pytest.mark.parametrize("kind", [pb.FLOAT, pb.FLOAT16])
def test_raw_numbers_both_ways(kind: int) -> None:
    values = np.array([[0.5, -2], [65504, float("inf")]], np.float32)
    assert np.array_equal(blob_to_array(blobs.array_to_raw_blob(values, kind)), values)
    assert blob_to_array(blobs.array_to_raw_blob(np.float32(3), kind)).shape == ()
    large = np.array([70000], np.float32)
    if kind == pb.FLOAT16:
        with pytest.raises(BptError, match="beyond 65504"):
            blobs.array_to_raw_blob(large, kind)
    else:
        assert blob_to_array(blobs.array_to_raw_blob(large, kind)) == large
