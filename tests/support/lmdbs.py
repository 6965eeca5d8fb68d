"""Makes small LMDBs for the tests of this folder and of the layers."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np

from bpt.data.annotated import encode_annotated
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter


def write_records(path: Path, records: dict[bytes, bytes]) -> str:
    """An LMDB with these keys and values, written without bpt."""
    path.mkdir()
    with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
        for key, value in records.items():
            transaction.put(key, value)
    return str(path)


def write_images(path: Path, images: list[np.ndarray], labels: list[int] | None = None) -> str:
    """An LMDB of these images (C, H, W), labelled 0, 1, 2, … unless told otherwise."""
    with LmdbWriter(path) as writer:
        for index, image in enumerate(images):
            writer.put(encode_datum(image, labels[index] if labels else index))
    return str(path)


def write_annotated(path: Path, images: list[np.ndarray], objects: list[np.ndarray]) -> str:
    """An LMDB of these images (C, H, W) with their objects: rows (label, instance, 4 corners, difficult)."""
    with LmdbWriter(path) as writer:
        for image, own in zip(images, objects, strict=True):
            writer.put(encode_annotated(image, np.asarray(own, np.float32).reshape(-1, 7)))
    return str(path)
