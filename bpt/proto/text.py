"""Text format (prototxt) in and out: the one module to import for it."""

from __future__ import annotations

import codecs
import os

from bpt.errors import PrototxtError
from bpt.proto.files import UnreadableError, read_bytes
from bpt.proto.format import to_text
from bpt.proto.kinds import BINARY_KINDS, describe, kind_of
from bpt.proto.parse import M, ParsedText, parse_text

__all__ = ["ParsedText", "parse_text", "read_text", "to_text"]


def read_text(path: str | os.PathLike[str], message_class: type[M]) -> ParsedText[M]:
    """Reads the file at ``path`` as :func:`parse_text` reads text.

    The text must be UTF-8, with or without a byte order mark; comments may hold any bytes.
    Raises PrototxtError: with line and column for a mistake in the text, without for a file that is missing,
    cannot be read or is binary.
    """
    name = os.fspath(path)
    try:
        content = read_bytes(path)
    except UnreadableError as error:
        raise PrototxtError(f"{name}: {error}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise PrototxtError(f"{name}: is UTF-16; save the file as UTF-8")
    kind = kind_of(content)
    if b"\0" in content or kind in BINARY_KINDS:
        raise PrototxtError(f"{name}: is {describe(kind)}, not a prototxt")
    return parse_text(content.decode("utf-8-sig", "surrogateescape"), message_class, name)
