"""Binary protobuf files in and out: weights, solver states, mean images."""

from __future__ import annotations

import os
from typing import TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from bpt.errors import FileError, WriteError
from bpt.proto.atomic import atomic_file
from bpt.proto.fields import field_by_number
from bpt.proto.files import UnreadableError, read_bytes
from bpt.proto.kinds import FileKind, describe, kind_of, sniff
from bpt.proto.wire import MalformedError, outline, wire_types

__all__ = ["LARGEST_MESSAGE", "read_binary", "sniff", "write_binary"]

M = TypeVar("M", bound=Message)

LARGEST_MESSAGE = 2**31 - 1
"""Bytes that protobuf can hold in one message."""

_EXPECTED: dict[str, FileKind] = {
    "NetParameter": "caffemodel",
    "SolverState": "solverstate",
    "BlobProto": "mean",
}
_TOO_LARGE = "more than the 2 GB that protobuf can hold; use HDF5 (snapshot_format: HDF5)"


def read_binary(path: str | os.PathLike[str], message_class: type[M]) -> M:
    """Reads the message of ``message_class`` that the file at ``path`` holds.

    Raises FileError if the file is missing, cannot be read, is empty, is another kind of file (which is
    named), is damaged or truncated, or is larger than protobuf allows.
    """
    try:
        content = read_bytes(path)
    except UnreadableError as error:
        raise FileError(path, str(error)) from None
    if not content:
        raise FileError(path, "is empty")
    if len(content) > LARGEST_MESSAGE:
        raise FileError(path, f"has {len(content)} bytes, {_TOO_LARGE}")
    kind = kind_of(content)
    expected = _EXPECTED.get(message_class.DESCRIPTOR.name, "unknown")
    wanted = describe(expected) if expected != "unknown" else f"a {message_class.DESCRIPTOR.name}"
    if kind not in (expected, "unknown"):
        raise FileError(path, f"is {describe(kind)}, not {wanted}")
    if kind != expected and not _fits(content, message_class):
        raise FileError(path, f"is not {wanted}")
    try:
        return message_class.FromString(content)
    except DecodeError:
        raise FileError(path, f"is {wanted}, but damaged or truncated") from None


def write_binary(path: str | os.PathLike[str], message: Message) -> None:
    """Writes ``message`` to the file at ``path``, all of it or nothing; see :mod:`bpt.proto.atomic`.

    Raises WriteError if the file cannot be written or the message is larger than protobuf allows.
    """
    try:
        content = message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise WriteError(path, _TOO_LARGE if message.IsInitialized() else error) from None
    if len(content) > LARGEST_MESSAGE:
        raise WriteError(path, f"{len(content)} bytes, {_TOO_LARGE}")
    with atomic_file(path) as file:
        file.write(content)


def _fits(content: bytes, message_class: type[Message]) -> bool:
    """Whether every field at the top level of ``content`` is one of ``message_class``."""
    try:
        for part in outline(content):
            field = field_by_number(message_class, part.number)
            if field is None or part.wire_type not in wire_types(field):
                return False
    except MalformedError:
        return False
    return True
