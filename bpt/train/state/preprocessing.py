"""The preprocessing of images in training, recorded beside its snapshots, for those who use its weights."""

from __future__ import annotations

import os
import re

from bpt.base.atomic import atomic_file
from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text, to_text
from bpt.data.transform import read_mean, write_mean

_SNAPSHOT = re.compile(r"_iter_\d+\.caffemodel(\.h5)?$")
_HEAD = "# How images became the net's input in training: bpt classify, detect and explain do the same to theirs.\n"


def path_of(prefix: str) -> str:
    """Return the path of the record of snapshots with this prefix."""
    return f"{prefix}_preprocessing.prototxt"


def write_preprocessing(prefix: str, found: pb.ImagePreprocessing) -> None:
    """Write the record, and beside it a copy of the mean image, if there is one.

    Raises:
        WriteError: a file could not be written.
    """
    own = pb.ImagePreprocessing()
    own.CopyFrom(found)
    param = own.transform_param
    if param.mean_file:
        mean = f"{prefix}_mean.binaryproto"
        write_mean(mean, read_mean(param.mean_file))
        param.mean_file = os.path.basename(mean)
    with atomic_file(path_of(prefix)) as file:
        file.write((_HEAD + to_text(own)).encode())


def read_preprocessing(path: str) -> pb.ImagePreprocessing:
    """Return the record at ``path``; its mean file is relative to the current folder.

    Raises:
        PrototxtError: the file is missing, or is no such text.
    """
    found = read_text(path, pb.ImagePreprocessing).message
    if found.transform_param.mean_file:
        folder = os.path.dirname(path)
        found.transform_param.mean_file = os.path.join(folder, found.transform_param.mean_file)
    return found


def beside(weights: str) -> str:
    """Return the record beside the weights of a snapshot; "" if there is none."""
    path = path_of(_SNAPSHOT.sub("", weights))
    return path if _SNAPSHOT.search(weights) and os.path.isfile(path) else ""


def check_shape(found: pb.ImagePreprocessing, path: str) -> None:
    """Refuse a record with only one side of a size, or an unusual number of channels."""
    if bool(found.height) != bool(found.width) or min(found.height, found.width) < 0:
        raise FileError(path, "give a height and a width, or neither")
    if found.channels not in (0, 1, 3):
        raise FileError(path, f"channels is {found.channels}; images have 1 (gray) or 3")
