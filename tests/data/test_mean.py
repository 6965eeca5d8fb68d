"""Mean images against those that Caffe's compute_image_mean wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.data.mean import mean_image, read_mean, write_mean
from bpt.errors import FileError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import write_binary
from tests.golden_cases import GOLDEN

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
