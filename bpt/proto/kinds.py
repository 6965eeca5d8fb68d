"""Tells from its content what kind of file something is, so that a wrong one can be named."""

from __future__ import annotations

import mmap
import os
import re
from typing import Literal

from bpt.proto.wire import FIXED32, FIXED64, LENGTH, VARINT, MalformedError, outline

FileKind = Literal["caffemodel", "solverstate", "mean", "hdf5", "prototxt", "unknown"]

BINARY_KINDS: frozenset[FileKind] = frozenset({"caffemodel", "solverstate", "mean", "hdf5"})

_DESCRIPTIONS: dict[FileKind, str] = {
    "caffemodel": "a binary file of weights (caffemodel)",
    "solverstate": "a binary solver state (solverstate)",
    "mean": "a binary blob, such as a mean image (binaryproto)",
    "hdf5": "an HDF5 file",
    "prototxt": "a text file (prototxt)",
    "unknown": "a file of an unknown kind",
}
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEAD = 65536  # bytes that are looked at to recognise text
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_FIRST_FIELD = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*[A-Za-z_][A-Za-z0-9_]*\s*[:{<]")
# The state of a large net has thousands of fields, and the first ones tell.
_ENOUGH_FIELDS = 64


def sniff(path: str | os.PathLike[str]) -> FileKind:
    """What kind of file is at ``path``.

    ``caffemodel`` (weights: a NetParameter), ``solverstate`` (a SolverState), ``mean`` (a BlobProto),
    ``hdf5``, ``prototxt`` or ``unknown``; an empty file is unknown. The content decides, not the name, and the
    start of it is enough. Raises OSError if the file cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return "unknown"
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            return kind_of(view)


def kind_of(data: bytes | memoryview) -> FileKind:
    """What kind of file has the content ``data``; see :func:`sniff`."""
    head = bytes(data[:_HEAD])
    if head.startswith(_HDF5_SIGNATURE):
        return "hdf5"
    # Text first: a text may by chance look like fields, but binary files have control characters early on.
    if _FIRST_FIELD.match(head) and not _CONTROL.search(head):
        return "prototxt"
    return _message_kind(_top_fields(data))


def describe(kind: FileKind) -> str:
    """``kind`` in words, with an article, for messages."""
    return _DESCRIPTIONS[kind]


def _top_fields(data: bytes | memoryview) -> set[tuple[int, int]]:
    """Number and wire type of the first fields, as far as they make sense."""
    found = set()
    try:
        for index, field in enumerate(outline(data)):
            found.add((field.number, field.wire_type))
            if index == _ENOUGH_FIELDS:
                break
    except MalformedError:
        pass
    return found


def _message_kind(fields: set[tuple[int, int]]) -> FileKind:
    """The message that has these fields; the three differ in how their fields 1 to 3 are stored."""
    starts_with_number = (1, VARINT) in fields
    has_layers = not starts_with_number and bool(fields & {(100, LENGTH), (2, LENGTH)})
    if has_layers:
        return "caffemodel"
    if starts_with_number and fields & {(2, LENGTH), (3, LENGTH)}:
        return "solverstate"
    values = {(5, LENGTH), (5, FIXED32), (8, LENGTH), (8, FIXED64)}
    if fields & values and not fields & {(1, LENGTH), (2, LENGTH), (3, LENGTH), (4, LENGTH)}:
        return "mean"
    return "unknown"
