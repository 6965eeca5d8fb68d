"""What is done to the numbers of an input, where the maximum is, and where the results go."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bpt.apps.explain.model_input import Preprocessing, check_outputs, peak, prefix_of, preprocessing_of
from bpt.base.errors import FileError, LayerError, UsageError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.transform import write_mean
from tests.support.explain_nets import conv, explained, input_layer, pool, scores
from tests.support.lmdbs import write_images

Kinds = pb.VolumeDataParameter
X = np.array([[1, 3], [5, 7]], np.float32).reshape(1, 2, 2)  # mean 4, standard deviation √5
BODY = (conv("c", "data", 2, 1), pool("c"), scores("pool", 2))


@pytest.mark.parametrize(
    ("preprocessing", "wanted"),
    [
        (Preprocessing(Kinds.RAW), [1, 3, 5, 7]),
        (Preprocessing(Kinds.MIN_MAX), [0, 1 / 3, 2 / 3, 1]),
        (Preprocessing(Kinds.Z_SCORE), [-3 / 5**0.5, -1 / 5**0.5, 1 / 5**0.5, 3 / 5**0.5]),
        (Preprocessing(Kinds.RAW, np.array([1.0], np.float32), 0.5), [0, 1, 2, 3]),
        (Preprocessing(Kinds.RAW, X / 2), [0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_rules(preprocessing: Preprocessing, wanted: list[float]) -> None:
    found = preprocessing(X, "x")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-6)


def test_a_mean_for_each_channel() -> None:
    found = Preprocessing(Kinds.RAW, np.array([1, 2], np.float32), 2.0)(np.concatenate([X, X]), "x")
    np.testing.assert_array_equal(found, np.concatenate([(X - 1) * 2, (X - 2) * 2]))
    with pytest.raises(UsageError, match="2 means for the 1 channels of scan; give one, or one each"):
        Preprocessing(Kinds.RAW, np.array([1, 2], np.float32))(X, "scan")


def test_equal_voxels() -> None:
    with pytest.raises(FileError, match="scan: all its voxels are 1: Z_SCORE has nothing to divide by"):
        Preprocessing(Kinds.Z_SCORE)(np.ones((1, 2, 2), np.float32), "scan")


def test_who_says_the_rule(tmp_path: Path) -> None:
    plain = explained(tmp_path, input_layer(1, 1, 4, 4, 4), *BODY)
    assert str(preprocessing_of(plain)) == "intensity Z_SCORE (the default; the net does not say)"
    assert str(preprocessing_of(plain, "MIN_MAX")) == "intensity MIN_MAX (as the flags say)"
    told = str(preprocessing_of(plain, mean=(1, 2.5), scale=0.5))
    assert told == "intensity RAW, less 1, 2.5, times 0.5 (as the flags say)"
    volumes = 'layer { name: "scans" type: "VolumeData" top: "data" volume_data_param { shape: 4 intensity: MIN_MAX } }'
    net = explained(tmp_path, volumes, *BODY)
    assert str(preprocessing_of(net)) == 'intensity MIN_MAX (as layer "scans" says)'
    assert str(preprocessing_of(net, "RAW")) == "intensity RAW (as the flags say)"


def test_images_rule(tmp_path: Path) -> None:
    """The centre of the mean image, and a scale; that of data_param has no effect."""
    write_images(tmp_path / "lmdb", [np.zeros((1, 6, 6), np.uint8)], [0])
    mean = np.arange(36, dtype=np.float32).reshape(1, 6, 6)
    write_mean(tmp_path / "mean.binaryproto", mean)
    param = f'mean_file: "{tmp_path}/mean.binaryproto" crop_size: 4 scale: 0.5'
    data = f"""layer {{ name: "images" type: "Data" top: "data" top: "label" transform_param {{ {param} }}
      data_param {{ source: "{tmp_path}/lmdb" backend: LMDB batch_size: 2 scale: 9 }} }}"""
    net = explained(tmp_path, data, *BODY)
    assert net.input.shape == (1, 1, 4, 4)
    preprocessing = preprocessing_of(net)
    assert str(preprocessing) == 'intensity RAW, less the mean image, times 0.5 (as layer "images" says)'
    np.testing.assert_array_equal(preprocessing.mean, mean[:, 1:5, 1:5])
    values = explained(tmp_path, data.replace(param, "mean_value: 3 scale: 0.5"), *BODY)
    assert str(preprocessing_of(values)) == 'intensity RAW, less 3, times 0.5 (as layer "images" says)'
    write_mean(tmp_path / "mean.binaryproto", mean[:, :3])
    with pytest.raises(LayerError, match=re.escape("the mean image has shape (1, 3, 6), the net's input (1, 4, 4)")):
        preprocessing_of(net)


def test_peak() -> None:
    heat = np.zeros((5, 6))
    assert peak(heat) == (2, 2)
    heat[0, 5] = 1
    assert peak(heat) == (0, 5)
    heat[0:3, 3:6] = 1  # a flat top
    assert peak(heat) == (1, 4)


@pytest.mark.parametrize(
    ("output", "path", "prefix"),
    [
        ("", "a/b/scan.nii.gz", "scan_cam"),
        ("", "scan.nii", "scan_cam"),
        ("", "a/scan.v2.PNG", "scan.v2_cam"),
        ("", "scan", "scan_cam"),
        ("out/map", "scan.nii", "out/map"),
        ("out/map.nii.gz", "scan.nii", "out/map"),
        ("map.png", "scan.nii", "map"),
    ],
)
def test_prefix(output: str, path: str, prefix: str) -> None:
    assert prefix_of(output, path) == prefix


def test_outputs_are_checked(tmp_path: Path) -> None:
    scan = tmp_path / "scan.png"
    scan.touch()
    (tmp_path / "link.png").symlink_to(scan)
    check_outputs([tmp_path / "other.png"], str(scan))
    for name in ("scan.png", "link.png"):
        with pytest.raises(UsageError, match="is the input itself; give another prefix"):
            check_outputs([tmp_path / "other.png", tmp_path / name], str(scan))
    with pytest.raises(UsageError, match=f'--output: there is no folder "{tmp_path}/no"'):
        check_outputs([tmp_path / "no" / "x.png"], str(scan))
