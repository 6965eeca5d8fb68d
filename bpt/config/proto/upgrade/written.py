"""Messages together with the places of their fields, so that both can be moved; and the notes of an upgrade."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from bpt.base.origin import FieldPath, Origin, locate

M = TypeVar("M", bound=Message)

Origins = dict[FieldPath, Origin]
"""The places of the fields of a message, by their paths from its top; ``()`` is the message itself."""


@dataclass
class Written(Generic[M]):
    """An element of a list, such as a layer; ``path`` is the file of its text, or None."""

    message: M
    origins: Origins
    path: str | None

    def place(self, *where: str | int) -> Origin | None:
        """Return the place of the field ``where`` or, if it is not set, of the nearest field around it."""
        return None if self.path is None else locate(self.origins, where, self.path)


def remove_elements(messages: Iterable[M], origins: Origins, prefix: FieldPath, path: str | None) -> list[Written[M]]:
    """Remove the elements of the list at ``prefix`` from ``origins``; return them with their places."""
    elements = [Written(message, {}, path) for message in messages]
    at = len(prefix)
    for key in [key for key in origins if key[:at] == prefix]:
        origin = origins.pop(key)
        if len(key) > at:
            elements[int(key[at])].origins[key[at + 1 :]] = origin
    return elements


def insert_elements(elements: Iterable[Written[M]], origins: Origins, prefix: FieldPath) -> None:
    """Enter the places of ``elements``, which are now the list at ``prefix``, into ``origins``."""
    for index, element in enumerate(elements):
        for key, origin in element.origins.items():
            where = (*prefix, index, *key)
            origins[where] = origin
        if () in element.origins:
            origins.setdefault(prefix, element.origins[()])


@dataclass(frozen=True)
class Note:
    """A sentence for the log; ``str()`` puts its place before it.

    ``place`` is None if the message is not from a text. ``lossy`` means that a part of the old file had no meaning and
    is not in the new one. Caffe's upgrade tools then fail after they have written their file.
    """

    text: str
    place: Origin | None = None
    lossy: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text
