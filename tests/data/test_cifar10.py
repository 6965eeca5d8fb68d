"""CIFAR-10's binary format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.data.cifar10 import TEST, TRAIN, convert_cifar10, read_batch, read_batches
from bpt.errors import FileError


def write_batches(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Six files of two records each; their images and labels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = random.integers(0, 10, 12, dtype=np.uint8)
    for index, name in enumerate((*TRAIN, *TEST)):
        records = [bytes([labels[i]]) + images[i].tobytes() for i in (2 * index, 2 * index + 1)]
        (folder / name).write_bytes(b"".join(records))
    return images, labels


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
