"""AnnotatedDatum, the record of SSD's databases: an image with the boxes of its objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import decode_datum, encode_datum
from bpt.data.lmdb_file import DatumRecord, LmdbSource
from bpt.data.source import Image

Objects = NDArray[np.float32]
"""Rows (label, instance, xmin, ymin, xmax, ymax, difficult) with boxes as fractions of the image: (G, 7)."""
COLUMNS = 7
BOX = slice(2, 6)


class AnnotatedSample(NamedTuple):
    """A record; ``key`` names it in messages, and ``label`` is the label of its Datum."""

    key: str
    image: Image
    label: float
    objects: Objects


def is_annotated(record: bytes) -> bool:
    """Return whether a record has the form of an AnnotatedDatum, which contains a Datum."""
    try:
        return pb.AnnotatedDatum.FromString(record).HasField("datum")
    except DecodeError:
        return False


def decode_annotated(record: bytes, channels: int | None = None) -> tuple[Image, float, Objects]:
    """Return the image of a record, its label and its objects; ``decode_datum`` describes the image.

    Raises:
        DataError: the record is not an AnnotatedDatum, its Datum cannot be used, or a box is not finite.
    """
    try:
        annotated = pb.AnnotatedDatum.FromString(record)
    except DecodeError:
        raise DataError("not an AnnotatedDatum, or a damaged one") from None
    if not annotated.HasField("datum"):
        raise DataError("an AnnotatedDatum without an image; an LMDB of plain Datum records needs a Data layer")
    image, label = decode_datum(annotated.datum.SerializeToString(), channels)
    rows = [
        (group.group_label, one.instance_id, *_corners(one.bbox), one.bbox.difficult)
        for group in annotated.annotation_group
        for one in group.annotation
    ]
    objects = np.array(rows, np.float32).reshape(-1, COLUMNS)
    if not np.isfinite(objects).all():
        raise DataError("a box with a corner that is not finite")
    return image, label, objects


def _corners(box: pb.NormalizedBBox) -> tuple[float, float, float, float]:
    return box.xmin, box.ymin, box.xmax, box.ymax


def encode_annotated(image: Image, objects: Objects) -> pb.AnnotatedDatum:
    """Return the record of an ``image`` (C, H, W) and of its ``objects`` (G, 7), grouped by label."""
    return annotate(encode_datum(image, 0), objects)


def annotate(datum: pb.Datum, objects: Objects) -> pb.AnnotatedDatum:
    """Return the record of an image, given as a ``datum``, and of its ``objects`` (G, 7)."""
    annotated = pb.AnnotatedDatum(datum=datum, type=pb.AnnotatedDatum.BBOX)
    for label in dict.fromkeys(objects[:, 0].tolist()):
        group = annotated.annotation_group.add(group_label=int(label))
        for _, instance, xmin, ymin, xmax, ymax, difficult in objects[objects[:, 0] == label].tolist():
            box = pb.NormalizedBBox(xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax, difficult=bool(difficult))
            group.annotation.add(instance_id=int(instance), bbox=box)
    return annotated


class AnnotatedSource:
    """The AnnotatedDatum records of the LMDB in the folder ``path``; LmdbSource describes the arguments."""

    def __init__(self, path: str, *, random_access: bool = False, channels: int | None = None) -> None:
        self.path = path
        self._records = LmdbSource(path, random_access=random_access)
        self._channels = channels
        self.glance = self._records.glance
        self.close = self._records.close

    def __len__(self) -> int:
        return len(self._records)

    def begin(self, index: int) -> Callable[[], AnnotatedSample]:
        """Read record ``index``, and return a function that decodes it, which any thread may call."""
        return partial(self._sample, self._records.record(index))

    def read(self, index: int) -> AnnotatedSample:
        return self.begin(index)()

    def has_boxes(self) -> bool:
        """Return whether the type of the first record's annotation is boxes."""
        record = self._records.record(0).datum
        try:
            return pb.AnnotatedDatum.FromString(record).HasField("type")
        except DecodeError:
            return False

    def _sample(self, record: DatumRecord) -> AnnotatedSample:
        key = record.key.decode("ascii", "backslashreplace")
        try:
            return AnnotatedSample(key, *decode_annotated(record.datum, self._channels))
        except DataError as error:
            raise DataError(f'{self.path}: record "{key}": {error}') from None
