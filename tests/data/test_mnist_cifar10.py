"""MNIST's and CIFAR-10's files as LMDBs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import FileError
from bpt.data.mnist_cifar10 import TRAIN, convert_cifar10, convert_mnist, read_batch, read_batches, read_idx
from tests.support.mnist_cifar10_files import idx, write_batches


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


def test_batches(tmp_path: Path) -> None:
    images, labels = write_batches(tmp_path)
    read = list(read_batches(tmp_path, TRAIN))
    np.testing.assert_array_equal(np.stack([image for image, _ in read]), images[:10])
    assert [label for _, label in read] == labels[:10].tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00" * 3072, "is damaged: 3072 bytes are no multiple of 3073"),
        (b"\x0a" + b"\x00" * 3072, "is not CIFAR-10: it has the label 10"),
        (b"", "is damaged: 0 bytes"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_batch(tmp_path / "data_batch_1.bin")


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"data_batch_1\.bin: cannot be read: No such file"):
        list(convert_cifar10(tmp_path, tmp_path))
