"""The mean of a database's images; Caffe's own files are compared in tests/tools/test_compute_image_mean.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.apps.convert.image_mean import compute_image_mean
from bpt.base.errors import FileError
from bpt.data.transform import read_mean
from tests.support.lmdbs import write_images


def test_floats(tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(7, 2, 3, 4)).astype(np.float32)
    told: list[str] = []
    path = write_images(tmp_path / "lmdb", list(images))
    mean = compute_image_mean(path, str(tmp_path / "mean"), told.append)
    np.testing.assert_allclose(mean, images.mean(axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(read_mean(str(tmp_path / "mean")), mean)
    assert told[:3] == ["Processed 7 files.", f"Write to {tmp_path}/mean", "Number of channels: 2"]
    shown = [float(line.rpartition(":")[2]) for line in told[3:]]
    np.testing.assert_allclose(shown, images.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-6)


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        compute_image_mean(str(tmp_path / "none"))
