"""The digits for ``scripts/bench bptcnn``: more of them than there are, and how well weights tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

import bpt
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbSource, LmdbWriter

WINDOW = 28  # pixels that LeNet sees of an image's 32
TESTED = 250  # images at once
Image = NDArray[np.uint8]
"""(C, H, W)"""


def write_training(digits: Path, folder: Path, samples: int) -> Path:
    """The training images as often as it takes for ``samples``; training sees each through a window at random."""
    images = list(_read(digits / "train_lmdb"))
    return _write(folder / f"train_{samples}_lmdb", (images[index % len(images)] for index in range(samples)))


def write_windows(digits: Path, folder: Path) -> Path:
    """Each test image through every window that training may look through: 25 of an image of 32 x 32 pixels."""
    images = _read(digits / "test_lmdb")
    return _write(folder / "windows_lmdb", ((each, label) for image, label in images for each in windows(image)))


def windows(image: Image, side: int = WINDOW) -> Iterator[Image]:
    """All parts (C, side, side) of an ``image``, row by row."""
    _, height, width = image.shape
    for top in range(height - side + 1):
        for left in range(width - side + 1):
            yield image[:, top : top + side, left : left + side]


def write_test_net(net: pb.NetParameter, data: Path, path: Path) -> None:
    """A net that tests on all the images in ``data`` as they are, in batches of TESTED."""
    param = pb.NetParameter()
    param.CopyFrom(net)
    for layer in param.layer:
        if layer.type == "Data":
            layer.data_param.source = str(data)
            layer.data_param.batch_size = TESTED
            layer.transform_param.ClearField("crop_size")
    path.write_text(to_text(param))


def accuracy(net: Path, weights: Path, images: int) -> float:
    """The part of ``images`` that a net of ``write_test_net`` tells with these weights."""
    assert images % TESTED == 0, images
    with bpt.Net(net, bpt.TEST, weights) as tested:
        return fmean(float(tested.forward()["accuracy"]) for _ in range(images // TESTED))


def _read(path: Path) -> Iterator[tuple[Image, int]]:
    source = LmdbSource(str(path))
    for index in range(len(source)):
        sample = source.read(index)
        yield sample.image.astype(np.uint8), int(sample.label)
    source.close()


def _write(path: Path, images: Iterable[tuple[Image, int]]) -> Path:
    """An LMDB, if there is none yet: it takes its name when it is complete."""
    if not path.exists():
        with LmdbWriter(path) as writer:
            for image, label in images:
                writer.put(encode_datum(image, label))
    return path
