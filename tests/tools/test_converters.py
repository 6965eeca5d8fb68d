"""``tools/convert_mnist_data.py`` and ``tools/convert_cifar_data.py`` on small files of their formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bpt.data.lmdb_file import LmdbSource
from tests.support.commands import Tool
from tests.support.mnist_cifar10_files import idx, write_batches


def contents(path: Path) -> tuple[np.ndarray, list[float]]:
    source = LmdbSource(str(path))
    samples = [source.read(index) for index in range(len(source))]
    source.close()
    return np.stack([sample.image for sample in samples]), [sample.label for sample in samples]


def test_mnist(tool: Tool, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    (tmp_path / "images").write_bytes(idx(images))
    (tmp_path / "labels").write_bytes(idx(np.array([3, 1, 4, 1, 5], np.uint8)))
    words = ("convert_mnist_data", tmp_path / "images", tmp_path / "labels", tmp_path / "lmdb")
    outcome = tool(*words, "--backend=lmdb")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{tmp_path}/lmdb: 5 images\n", "")
    written, labels = contents(tmp_path / "lmdb")
    np.testing.assert_array_equal(written, images[:, np.newaxis])
    assert labels == [3, 1, 4, 1, 5]
    assert tool(*words).error == f"{tmp_path}/lmdb: exists already; remove it or name another"
    assert tool(*words, "-backend", "leveldb").status == 2


def test_cifar10(tool: Tool, tmp_path: Path) -> None:
    images, labels = write_batches(tmp_path)
    (tmp_path / "out").mkdir()
    outcome = tool("convert_cifar_data", tmp_path, tmp_path / "out", "lmdb")
    assert (outcome.status, outcome.err) == (0, "")
    for name, part in (("cifar10_train_lmdb", slice(0, 10)), ("cifar10_test_lmdb", slice(10, 12))):
        written, written_labels = contents(tmp_path / "out" / name)
        np.testing.assert_array_equal(written, images[part])
        assert written_labels == labels[part].tolist()
    assert "LevelDB is neither" in tool("convert_cifar_data", tmp_path, tmp_path / "b", "leveldb").error
