"""The record of training's preprocessing of images or scans, beside the snapshots, for all uses of the weights."""

from __future__ import annotations

import os
import re

import numpy as np

from bpt.base.atomic import write_text
from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text, to_text
from bpt.data.transform import read_mean, write_mean

_END = re.compile(r"(_iter_\d+|_best)?(\.caffemodel(\.h5)?|\.h5|\.safetensors)$")
_HEAD = "# How images became the net's input in training: bpt classify, detect and explain do the same to theirs.\n"
_HEAD_OF_SCANS = "# How scans became the net's input in training: bpt explain does the same to its scan.\n"


def path_of(prefix: str) -> str:
    """Return the path of the record for snapshots with this prefix."""
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
    head = _HEAD_OF_SCANS if own.HasField("intensity") else _HEAD
    write_text(path_of(prefix), head + to_text(own))


def read_preprocessing(path: str) -> pb.ImagePreprocessing:
    """Return the record at ``path``; its mean file is relative to the current folder.

    Raises:
        PrototxtError: the file is missing, or is not such a text.
    """
    found = read_text(path, pb.ImagePreprocessing).message
    if found.transform_param.mean_file:
        folder = os.path.dirname(path)
        found.transform_param.mean_file = os.path.join(folder, found.transform_param.mean_file)
    return found


def prefix_of(weights: str) -> str:
    """Return a file's name without ``_iter_N`` or ``_best`` and without its suffix."""
    return _END.sub("", weights)


def beside(weights: str) -> str:
    """Return the path of the record beside a file of weights; "" if there is none."""
    path = path_of(prefix_of(weights))
    return path if _END.search(weights) and os.path.isfile(path) else ""


def carry_preprocessing(source: str, target: str) -> str:
    """Copy the record beside the weights ``source`` to the path of the record beside ``target``.

    An existing record does not change.

    Returns:
        A message about the copy; "" if there is no record to copy.

    Raises:
        PrototxtError: the record of ``source`` is not such a text.
        WriteError: a file could not be written.
    """
    record = beside(source)
    prefix = prefix_of(target)
    path = path_of(prefix)
    if not record or os.path.realpath(record) == os.path.realpath(path):
        return ""
    found = read_preprocessing(record)
    if not os.path.exists(path):
        write_preprocessing(prefix, found)
        return f"{path}: how inputs are prepared, as {record} says"
    if _is_same(found, path):
        return ""
    return (
        f"{path}: stays as it is, though {record} says something else; give --preprocessing {record} if that is right"
    )


def _is_same(record: pb.ImagePreprocessing, path: str) -> bool:
    """Return whether the record at ``path`` equals ``record``, and has an equal mean image."""
    other = read_preprocessing(path)
    means = [each.transform_param.mean_file for each in (record, other)]
    plain = []
    for each in (record, other):
        without = pb.ImagePreprocessing()
        without.CopyFrom(each)
        without.transform_param.ClearField("mean_file")
        plain.append(without)
    if plain[0] != plain[1] or bool(means[0]) != bool(means[1]):
        return False
    return not means[0] or np.array_equal(read_mean(means[0]), read_mean(means[1]))


def check_shape(found: pb.ImagePreprocessing, path: str) -> None:
    """Refuse a record with only one side of a size, or an unusual number of channels."""
    if bool(found.height) != bool(found.width) or min(found.height, found.width) < 0:
        raise FileError(path, "give a height and a width, or neither")
    if found.channels not in (0, 1, 3):
        raise FileError(path, f"channels is {found.channels}; images have 1 (gray) or 3")
