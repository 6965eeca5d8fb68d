"""Names of classes, from a text with one name on each line, or from a label map of SSD's Caffe."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bpt.base.errors import BptError, FileError
from bpt.base.user_files import file_errors, read_lines
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text

NAMES_FILE = "classes.txt"
"""The file beside a network's text that names its classes; ``bpt new`` writes it."""


def class_words(number: int, name: str) -> str:
    """Return a class as people read it; ``name`` is "" if it has none."""
    return f'{number} "{name}"' if name else f"class {number}"


class ClassNames:
    """The names of classes; a class may have none."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        """Return the name of a class; "" if it has none."""
        return self._names[number] if number < len(self._names) else ""

    def __bool__(self) -> bool:
        """Return whether any class has a name."""
        return any(self._names)

    def words(self, number: int) -> str:
        """Return a class as people read it in a list: ``3 "cat"``, or ``class 3`` without a name."""
        return class_words(number, self[number])

    def in_sentence(self, number: int) -> str:
        """Return a class as people read it in a sentence: ``class 3 "cat"``, or ``class 3`` without a name."""
        return f"class {self.words(number)}" if self[number] else self.words(number)

    def short(self, number: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return self[number] or str(number)

    def plain(self, number: int) -> dict[str, object]:
        """Return a class as an object of JSON."""
        return {"class": number, **({"name": self[number]} if self[number] else {})}


def class_names(path: str, classes: int) -> ClassNames:
    """Return the names of classes that the file ``path`` gives; no names if ``path`` is "".

    A file that ends in .prototxt is a LabelMap, which may leave classes out. Any other file has a name on each line,
    from class 0 on.

    Args:
        path: the file.
        classes: the number of the net's classes.

    Raises:
        FileError: the file cannot be read, or does not fit the classes.
        PrototxtError: the file is no LabelMap.
    """
    if not path:
        return ClassNames()
    return ClassNames(_of_map(path, classes) if path.endswith(".prototxt") else _of_lines(path, classes))


def names_of_net(labels: str, model: str, classes: int) -> ClassNames:
    """Return the names of the classes of the net whose text is ``model``.

    They are those that ``labels`` gives. If it is "", they are those of NAMES_FILE beside the text, if that names as
    many classes as the net has; otherwise classes have no names.

    Raises:
        FileError, PrototxtError: as ``class_names``, about ``labels``.
    """
    if labels:
        return class_names(labels, classes)
    try:
        return class_names(os.path.join(os.path.dirname(model), NAMES_FILE), classes)
    except BptError:
        return ClassNames()


def _of_lines(path: str, classes: int) -> list[str]:
    """Return the names in a text. Empty lines are left out, unless each class has a line only with them."""
    with file_errors(path):
        lines = [line.strip() for line in read_lines(path, "that names a class on each line")]
    names = [line for line in lines if line]
    while lines and not lines[-1]:
        lines.pop()
    for found in (names, lines):
        if len(found) == classes:
            return found
    raise FileError(path, f"names {len(names)} classes, the net has {classes}; write a line for each, from class 0 on")


def _of_map(path: str, classes: int) -> list[str]:
    names = [""] * classes
    for item in read_text(path, pb.LabelMap).message.item:
        if not 0 <= item.label < classes:
            raise FileError(path, f"names label {item.label}; the net has {classes} classes, from 0 on")
        names[item.label] = item.display_name or item.name
    return names
