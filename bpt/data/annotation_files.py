"""Reads files with the objects of an image: VOC's XML, JSON of SSD's scripts, and plain text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from bpt.base.errors import DataError, FileError, did_you_mean, excerpt
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text
from bpt.data.annotated import COLUMNS, Objects
from bpt.data.image_source import LARGEST_LABEL
from bpt.graph.layer_spec import Shape

Labels = Mapping[str, int]
"""Labels by the names of classes."""
_LARGEST = float(np.finfo(np.float32).max)


class _Object(NamedTuple):
    """An object: its class as a name or a number, and its box in pixels."""

    kind: str | int
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    difficult: bool = False


class _Contents(NamedTuple):
    """The content of an annotation file; ``size``: (height, width) for its boxes, or ``()`` for the image's size."""

    objects: list[_Object]
    size: tuple[float, ...] = ()


def read_labels(path: str, check: bool = False) -> dict[str, int]:
    """Return the labels of the LabelMap at ``path``, by the names of its classes.

    Args:
        check: whether to refuse a label that occurs twice.

    Raises:
        FileError: the file cannot be read; a name, or with ``check`` a label, occurs twice.
        PrototxtError: the file is not a LabelMap.
    """
    items = read_text(path, pb.LabelMap).message.item
    for what, found in (("name", [item.name for item in items]), ("label", [item.label for item in items])):
        twice = [each for each, number in Counter(found).items() if number > 1]
        if twice and (check or what == "name"):
            raise FileError(path, f'has the {what} "{twice[0]}" twice')
    return {item.name: item.label for item in items}


def read_objects(path: str, kind: str, labels: Labels, size: Shape) -> Objects:
    """Return the objects in the file at ``path``: (G, 7), with boxes as fractions of the image.

    Objects of a label are numbered from 0. As in SSD's Caffe, corners are divided by width and height without a shift,
    although VOC counts pixels from 1.

    Args:
        kind: the format of the file, a key of ``KINDS``.
        labels: the labels of class names; "txt" has labels and no names.
        size: (height, width) of the image, for a file without them.

    Raises:
        DataError: the file cannot be read, or has another format.
        FileError: a class is not in ``labels``.
    """
    try:
        contents = KINDS[kind](read_bytes(path))
    except UnreadableError as error:
        raise DataError(f"{path}: {error}") from None
    except _WRONG as error:
        raise DataError(f"{path}: is not a readable annotation in {kind}: {_in_words(error)}") from None
    height, width = contents.size or size
    numbers: Counter[int] = Counter()
    rows = []
    for one in contents.objects:
        label = one.kind if isinstance(one.kind, int) else labels.get(one.kind)
        if label is None:
            name = excerpt(str(one.kind))
            near = did_you_mean(name, labels)
            raise FileError(path, f'has an object "{name}", which the label map does not name{near}')
        corners = (one.xmin / width, one.ymin / height, one.xmax / width, one.ymax / height)
        if not all(abs(corner) <= _LARGEST for corner in corners):
            raise DataError(f"{path}: has a box with a corner that is not finite, or beyond float32")
        rows.append((label, numbers[label], *corners, one.difficult))
        numbers[label] += 1
    return np.array(rows, np.float32).reshape(-1, COLUMNS)


_WRONG = (ElementTree.ParseError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _in_words(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else excerpt(str(error))


def _of_xml(content: bytes) -> _Contents:
    root = ElementTree.fromstring(content)
    objects = []
    for found in root.findall("object"):
        box = found.find("bndbox")
        if box is None:
            raise KeyError("bndbox")
        xmin, ymin, xmax, ymax = (float(_text(box, name)) for name in ("xmin", "ymin", "xmax", "ymax"))
        difficult = (found.findtext("difficult") or "").strip() == "1"
        objects.append(_Object(_text(found, "name"), xmin, ymin, xmax, ymax, difficult))
    size = root.find("size")
    sides = () if size is None else (float(int(_text(size, "height"))), float(int(_text(size, "width"))))
    return _Contents(objects, sides if all(sides) else ())


def _text(element: ElementTree.Element, name: str) -> str:
    found = (element.findtext(name) or "").strip()
    if not found:
        raise KeyError(name)
    return found


def _of_json(content: bytes) -> _Contents:
    """Return the contents of an annotation file in JSON, as SSD's scripts write it.

    Its form is ``{"image": {"height": …, "width": …}, "annotation": [{"category_id": …, "bbox": [x, y, w, h],
    "iscrowd": …}]}``. The name of a class in the label map is its COCO number.
    """
    whole = json.loads(content)
    objects = []
    for found in whole["annotation"]:
        x, y, width, height = map(float, found["bbox"])
        crowd = bool(found.get("iscrowd", 0))
        objects.append(_Object(str(found["category_id"]), x, y, x + width, y + height, crowd))
    image = whole.get("image", {})
    sides = (float(int(image.get("height", 0))), float(int(image.get("width", 0))))
    return _Contents(objects, sides if all(sides) else ())


def _of_text(content: bytes) -> _Contents:
    """Return the contents of a text with a line ``label xmin ymin xmax ymax`` for each object."""
    return _Contents(list(_lines(content)))


def _lines(content: bytes) -> Iterator[_Object]:
    for line in content.decode("utf-8-sig").splitlines():
        if line.strip():
            label, *corners = line.split()
            if len(corners) != 4:
                raise ValueError(f'"{line.strip()[:40]}" is not a label and four corners')
            if abs(int(label)) > LARGEST_LABEL:
                raise ValueError(f"the label {label[:40]} is beyond float32's integers")
            xmin, ymin, xmax, ymax = map(float, corners)
            yield _Object(int(label), xmin, ymin, xmax, ymax)


KINDS: dict[str, Callable[[bytes], _Contents]] = {"xml": _of_xml, "json": _of_json, "txt": _of_text}
"""The readers of annotation formats, by name."""
