"""Binary protobuf files in and out: weights, solver states, mean images.

The outline of the format, its fields and the places of their contents, is read without parsing. The outline and other
signs show the kind of a file, so that an error can name it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from bpt.base.atomic import atomic_file
from bpt.base.errors import FileError, WriteError
from bpt.base.formats import HEAD, FileFormat, recognise
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.config.proto.fields import field_by_number, is_repeated

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

_STORED_FIXED = {FieldDescriptor.TYPE_FLOAT: FIXED32, FieldDescriptor.TYPE_DOUBLE: FIXED64}


class MalformedError(ValueError):
    """An error: the bytes are not in the binary format, or end inside a field."""


class CutError(MalformedError):
    """An error: the bytes end inside a field, of this number and wire type."""

    def __init__(self, number: int, wire_type: int) -> None:
        super().__init__("an incomplete field")
        self.number, self.wire_type = number, wire_type


class WireField(NamedTuple):
    """One field: its number, its wire type, and the place of its content, bytes ``start`` to ``end``."""

    number: int
    wire_type: int
    start: int
    end: int


def outline(data: bytes | _Content) -> Iterator[WireField]:
    """Yield the top-level fields of a serialised message; contents are skipped, not read.

    Raises:
        MalformedError: where the data stop making sense, after the valid fields.
    """
    position = 0
    while position < len(data):
        tag, start = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            end = read_varint(data, start)[1]
        elif wire_type == LENGTH:
            length, start = read_varint(data, start)
            end = start + length
        elif wire_type in (FIXED32, FIXED64):
            end = start + (4 if wire_type == FIXED32 else 8)
        else:
            raise MalformedError(f"wire type {wire_type}")
        if number == 0:
            raise MalformedError("an invalid field")
        if end > len(data):
            raise CutError(number, wire_type)
        yield WireField(number, wire_type, start, end)
        position = end


def read_varint(data: bytes | _Content, position: int) -> tuple[int, int]:
    """Return the variable-length integer at ``position``, and the position after it.

    Raises:
        MalformedError: there is no such integer.
    """
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[position : position + 10], strict=False):
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedError("an incomplete number")


def write_varint(value: int) -> bytes:
    """Return ``value`` (not negative) as a variable-length integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def wire_types(field: FieldDescriptor) -> frozenset[int]:
    """Return how values of ``field`` may be stored. Lists of numbers may be packed or not, whatever the schema says."""
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return frozenset({LENGTH})
    one = _STORED_FIXED.get(field.type, VARINT)  # the schema has no other types of fixed width
    return frozenset({one, LENGTH}) if is_repeated(field) else frozenset({one})


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
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_FIRST_FIELD = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*[A-Za-z_][A-Za-z0-9_]*\s*[:{<]")
# The state of a large net has thousands of fields; the first ones are enough.
_ENOUGH_FIELDS = 64
_LAYER = 100  # the number of a net's layers
_ONNX = FileFormat("an ONNX model", "bpt writes ONNX (bpt export) and does not read it")
_ONNX_MAKERS = frozenset(
    ("pytorch", "onnx", "onnx-example", "tf2onnx", "keras2onnx", "skl2onnx", "onnxmltools", "winmltools", "cntk",
     "caffe2", "onnx-caffe2", "paddlepaddle", "mxnet", "chainer", "bpt", "backend-test")
)  # fmt: skip


def sniff(path: str | os.PathLike[str]) -> FileKind:
    """Return the kind of the file at ``path``.

    Kinds are ``caffemodel`` (weights: a NetParameter), ``solverstate`` (a SolverState), ``mean`` (a BlobProto),
    ``hdf5``, ``prototxt`` or ``unknown``, which includes an empty file. The content decides, not the name, and its
    start is enough.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return kind_of(_Content(file))


class _Content:
    """The bytes of an open file, read on request and not mapped, since the file may be truncated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, stop, _ = place.indices(self._size)
        self._file.seek(start)
        return self._file.read(max(0, stop - start))


def kind_of(data: bytes | _Content) -> FileKind:
    """Return the kind of a file with the content ``data``, as :func:`sniff` does."""
    head = bytes(data[:HEAD])
    if head.startswith(_HDF5_SIGNATURE):
        return "hdf5"
    if recognise(head, len(data)):
        return "unknown"
    # Text first: a text may look like fields by chance, but binary files have control characters near the start.
    if _FIRST_FIELD.match(head) and not _CONTROL.search(head):
        return "prototxt"
    kind = _message_kind(_top_fields(data))
    if kind == "solverstate" and (_is_onnx(data) or _CONTROL.search(_second_field(data) or b"")):
        return "unknown"  # what a state has there is a path
    return kind


def recognise_format(data: bytes | _Content) -> FileFormat | None:
    """Return the program whose file has the content ``data``; None if it is Caffe's, or unknown."""
    found = recognise(bytes(data[:HEAD]), len(data))
    if found or kind_of(data) != "unknown":
        return found
    return _ONNX if _is_onnx(data) else None


def explain_format(data: bytes | _Content, wanted: str) -> str:
    """Return the message that ``data`` are something other than ``wanted``; empty if unknown."""
    found = recognise_format(data)
    return found.refuse(wanted) if found else ""


def _is_onnx(data: bytes | _Content) -> bool:
    """Return whether ``data`` begin as an ONNX ModelProto: version, producer, then graph (7) or operator sets (8)."""
    if bytes(data[:1]) != b"\x08":
        return False
    maker = (_second_field(data) or b"").decode(errors="replace").lower()
    return maker in _ONNX_MAKERS or bool(_top_fields(data) & {(7, LENGTH), (8, LENGTH)})


def describe(kind: FileKind) -> str:
    """Return ``kind`` in words, with an article, for messages."""
    return _DESCRIPTIONS[kind]


def _top_fields(data: bytes | _Content) -> set[tuple[int, int]]:
    """Return number and wire type of the first fields, as far as they are valid."""
    found = set()
    try:
        for index, field in enumerate(outline(data)):
            found.add((field.number, field.wire_type))
            if index == _ENOUGH_FIELDS:
                break
    except CutError as cut:
        # This is the start of a truncated file; in random bytes, the first field is cut as often as any other.
        if found or cut.number == _LAYER:
            found.add((cut.number, cut.wire_type))
    except MalformedError:
        pass
    return found


def _second_field(data: bytes | _Content) -> bytes | None:
    """Return the content of field 2, if it is among the first fields and has a length."""
    try:
        for _, field in zip(range(_ENOUGH_FIELDS), outline(data), strict=False):
            if field.number == 2 and field.wire_type == LENGTH:
                return bytes(data[field.start : min(field.end, field.start + HEAD)])
    except MalformedError:
        pass
    return None


def _message_kind(fields: set[tuple[int, int]]) -> FileKind:
    """Return the message that has these fields; the three differ in how their fields 1 to 3 are stored."""
    starts_with_number = (1, VARINT) in fields
    has_layers = not starts_with_number and bool(fields & {(100, LENGTH), (2, LENGTH)})
    if has_layers:
        return "caffemodel"
    if starts_with_number and fields & {(2, LENGTH), (3, LENGTH)}:
        return "solverstate"
    values = {(5, LENGTH), (5, FIXED32), (8, LENGTH), (8, FIXED64), (12, LENGTH)}
    if fields & values and not fields & {(1, LENGTH), (2, LENGTH), (3, LENGTH), (4, LENGTH)}:
        return "mean"
    return "unknown"


__all__ = ["LARGEST_MESSAGE", "read_binary", "read_content", "sniff", "write_binary"]

M = TypeVar("M", bound=Message)

LARGEST_MESSAGE = 2**31 - 1
"""The most bytes of a protobuf message."""

_EXPECTED: dict[str, FileKind] = {
    "NetParameter": "caffemodel",
    "SolverState": "solverstate",
    "BlobProto": "mean",
}
_READS = "bpt reads .caffemodel and HDF5 files of weights; bpt convert makes one of other formats"
_TOO_LARGE = "more than the 2 GB that protobuf can hold; use HDF5 (snapshot_format: HDF5)"


def read_binary(path: str | os.PathLike[str], message_class: type[M]) -> M:
    """Read the message of ``message_class`` that the file at ``path`` holds.

    Raises:
        FileError: the file is missing, cannot be read, is empty, is another kind of file (which the message names), is
            damaged or truncated, or is larger than protobuf allows.
    """
    content = read_content(path, message_class)
    try:
        return message_class.FromString(content)
    except DecodeError:
        expected = _EXPECTED.get(message_class.DESCRIPTOR.name, "unknown")
        wanted = describe(expected) if expected != "unknown" else f"a {message_class.DESCRIPTOR.name}"
        raise FileError(path, f"is {wanted}, but damaged or truncated") from None


def read_content(path: str | os.PathLike[str], message_class: type[Message]) -> bytes:
    """Return the bytes of a file that holds a message of ``message_class``, checked by its outline.

    Errors are those of :func:`read_binary`.
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
    remedy = f"; {_READS}" if expected == "caffemodel" else ""
    if (found := recognise_format(content)) and kind == "unknown":
        raise FileError(path, found.refuse(wanted) + ("" if found.remedy else remedy))
    if kind not in (expected, "unknown"):
        raise FileError(path, f"is {describe(kind)}, not {wanted}{remedy}")
    if kind != expected and not _fits(content, message_class):
        raise FileError(path, f"is not {wanted}{remedy}")
    return content


def write_binary(path: str | os.PathLike[str], message: Message) -> None:
    """Write ``message`` to the file at ``path``, completely or not at all, by :mod:`bpt.base.atomic`.

    Raises:
        WriteError: the file cannot be written or the message is larger than protobuf allows.
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
    """Return whether every field at the top level of ``content`` is one of ``message_class``."""
    try:
        for part in outline(content):
            field = field_by_number(message_class, part.number)
            if field is None or part.wire_type not in wire_types(field):
                return False
    except MalformedError:
        return False
    return True
