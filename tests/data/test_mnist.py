"""MNIST's format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from bpt.data.mnist import convert_mnist, read_idx
from bpt.errors import FileError


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


def test_plain_and_packed_files(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    (tmp_path / "a").write_bytes(idx(values))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(values)))
    np.testing.assert_array_equal(read_idx(tmp_path / "a"), values)
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), values)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"not idx", "is not an IDX file of unsigned bytes"),
        ("a", idx(np.zeros((2, 3), np.uint8))[:-1], r"it should hold \(2, 3\) values, but holds 5"),
        ("a", bytes((0, 0, 8, 3, 0)), "is not an IDX file of unsigned bytes"),
        ("a.gz", gzip.compress(b"x" * 1000, mtime=0)[:-12], "cannot be read"),
        ("a.gz", b"not packed", "cannot be read"),
    ],
)
def test_damaged_idx(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_idx(tmp_path / name)


def test_images_and_labels_that_do_not_belong_together(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(idx(np.zeros((2, 4, 3), np.uint8)))
    (tmp_path / "labels").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(FileError, match=r"images of shape \(2, 4, 3\) with labels of shape \(3,\)"):
        convert_mnist(str(tmp_path / "images"), str(tmp_path / "labels"), str(tmp_path / "lmdb"))
    assert not (tmp_path / "lmdb").exists()
