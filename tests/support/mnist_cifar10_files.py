"""Writes small files in the formats of MNIST and CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bpt.data.mnist_cifar10 import TEST, TRAIN


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


def write_batches(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Six files of two records each; their images and labels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = random.integers(0, 10, 12, dtype=np.uint8)
    for index, name in enumerate((*TRAIN, *TEST)):
        records = [bytes([labels[i]]) + images[i].tobytes() for i in (2 * index, 2 * index + 1)]
        (folder / name).write_bytes(b"".join(records))
    return images, labels
