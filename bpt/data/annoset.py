"""Converts listed images and their objects to an LMDB, as convert_annoset of SSD's Caffe does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from bpt.base.errors import DataError, FileError, UsageError, excerpt
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, Objects, annotate
from bpt.data.annotation_files import KINDS, read_labels, read_objects
from bpt.data.image import Pixels, import_pillow
from bpt.data.image_source import read_image
from bpt.data.imageset import (
    COLOUR,
    GREY,
    ImageConversion,
    Tell,
    image_datum,
    labelled_datum,
    labelled_images,
    write_listed,
)
from bpt.data.source import Sample, listed_lines, slash_hint

NO_LABEL = -1
"""The label of a Datum whose image has objects."""


@dataclass(frozen=True)
class Annotations:
    """The kind and the format of the annotations in a list of images.

    Attributes:
        kind: "detection": each line names a file with the image's objects; "classification": it has a label.
        written: the format of these files, a key of KINDS.
        label_map: the file of a LabelMap, which numbers the classes; "txt" and labels need none.
        check_label: whether to refuse a label map that has one label for two names.
    """

    kind: str = "detection"
    written: str = "xml"
    label_map: str = ""
    check_label: bool = False

    def __post_init__(self) -> None:
        for flag, found, known in (
            ("anno_type", self.kind, ("detection", "classification")),
            ("label_type", self.written, tuple(KINDS)),
        ):
            if found not in known:
                raise UsageError(f'--{flag} takes one of {", ".join(known)}, found "{found}"')
        if self.kind == "detection" and self.written != "txt" and not self.label_map:
            raise UsageError(f"--label_type {self.written} needs --label_map_file, which numbers the classes")


def convert_annoset(
    root: str,
    listed: str,
    target: str,
    wanted: ImageConversion,
    annotations: Annotations,
    tell: Tell = lambda line: None,
) -> tuple[int, int]:
    """Write the images that the file ``listed`` names, and the objects in them, to the LMDB ``target``.

    As in SSD's Caffe, boxes that reach beyond their image or have exchanged corners are kept; the first is reported.

    Returns:
        As ``write_listed``: how many images were written, and how many could not be read.

    Raises:
        FileError: the list or the label map is wrong, a class is not in the map, or as in ``write_listed``.
        DataError, WriteError: as in ``write_listed``.
    """
    if annotations.kind == "classification":
        labels = labelled_images(root, listed, wanted)
        return write_listed(labels, root, target, wanted, partial(_classified, root, wanted), tell)
    source = _AnnotatedFiles(listed, root, annotations, wanted)
    odd: list[str] = []

    def record(sample: _Annotated) -> pb.AnnotatedDatum:
        if not odd and _is_odd(sample.objects):
            odd.append(sample.key)
            tell(f"{root}{sample.key}: has a box that reaches beyond the image, or has exchanged corners")
        return annotate(image_datum(root, sample.key, sample.image, NO_LABEL, wanted), sample.objects)

    return write_listed(source, root, target, wanted, record, tell)


def _classified(root: str, wanted: ImageConversion, sample: Sample) -> pb.AnnotatedDatum:
    sample = sample._replace(image=wanted.resized(np.asarray(sample.image, np.uint8)))
    return pb.AnnotatedDatum(datum=labelled_datum(root, wanted, sample))


def _is_odd(objects: Objects) -> bool:
    boxes = objects[:, BOX]
    return bool((boxes < 0).any() or (boxes > 1).any() or (boxes[:, 2:] < boxes[:, :2]).any())


class _Annotated(NamedTuple):
    key: str
    image: Pixels
    objects: Objects


class _AnnotatedFiles:
    """The images of a list with lines "image annotation"; both paths start at ``root``."""

    def __init__(self, path: str, root: str, annotations: Annotations, wanted: ImageConversion) -> None:
        import_pillow()
        self.path = path
        self._root, self._wanted, self._written = root, wanted, annotations.written
        self._labels = read_labels(annotations.label_map, annotations.check_label) if annotations.label_map else {}
        self._entries: list[tuple[str, str, int]] = []
        remedy = "lists no images; write a line for each: its path, then that of its annotation"
        for number, line in listed_lines(path, "that lists images and their annotations", remedy):
            image, _, annotation = line.rpartition(" ")
            if not image:
                both = "is one path: write that of the image, a space, then that of its annotation"
                raise FileError(f"{path}:{number}", f'"{excerpt(annotation)}" {both}')
            self._entries.append((image.strip(), annotation, number))

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, index: int) -> _Annotated:
        """Return image ``index``; raise a DataError that names list, line and file if it cannot be used."""
        name, annotation, number = self._entries[index]
        read = name
        try:
            image = read_image(self._root + name, GREY if self._wanted.grey else COLOUR)
            read = annotation
            size = (image.shape[1], image.shape[2])
            objects = read_objects(self._root + annotation, self._written, self._labels, size)
        except DataError as error:
            raise DataError(f"{self.path}:{number}: {error}{slash_hint(self._root, read)}") from None
        return _Annotated(name, self._wanted.resized(image), objects)
