"""Make the standard streams usable if they are closed, full, broken or without Unicode."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_PLAIN = "bpt-plain"  # an error handler for encoding
_REPLACED = ("strict", "surrogateescape", "backslashreplace")  # any other handler is a user's choice
_SIMILAR = str.maketrans(
    {
        "×": "x", "·": "*", "…": "...", "–": "-", "—": "-", "−": "-", "→": "->", "←": "<-", "≥": ">=", "≤": "<=",
        "≈": "~", "±": "+-", "µ": "u", "μ": "u", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "█": "#", "▏": "|",
        "│": "|", "─": "-", "‖": "||", "²": "2", "³": "3", "°": " deg", "∞": "inf", "✓": "v", "•": "*", "├": "|",
        "└": "`", "√": "sqrt ", "Σ": "sum ", "½": "1/2", "⁴": "4", "λ": "lambda", "α": "alpha", "β": "beta",
        "γ": "gamma",
    }
)  # fmt: skip


def reopen_std_streams() -> None:
    """Open those of stdin, stdout and stderr that the caller closed as /dev/null, and allow all characters in them.

    Otherwise the next open file, perhaps a snapshot, would get the number of stderr and what libraries write to it.
    Python has no object for a closed stream; text for a closed stderr goes to stdout.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  as long as the process
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        allow_all_characters(stream)


def allow_all_characters(stream: TextIO) -> None:
    """Let ``stream`` write similar characters for those that its encoding lacks, instead of failing.

    Terminals and pipes may be ASCII or Latin-1 (``LANG``, ``PYTHONIOENCODING``). File names that are not UTF-8 are
    written byte by byte.
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors in _REPLACED:
        stream.reconfigure(errors=_PLAIN)


def _write_similar(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name
        return bytes([code - 0xDC00]), error.start + 1
    similar = character.translate(_SIMILAR)
    if not similar.isascii():
        similar = character.encode("ascii", "backslashreplace").decode()
    return similar, error.start + 1


codecs.register_error(_PLAIN, _write_similar)


def is_same_file(one: TextIO, other: TextIO) -> bool:
    """Return whether two streams lead to the same file, pipe or terminal."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (AttributeError, OSError, ValueError):  # no file of the system
        return one is other


def say(text: str) -> None:
    """Write whole lines to stderr; if that fails, to the terminal if there is one, and to stdout."""
    if _write(sys.stderr, text):
        return
    with suppress(OSError), open("/dev/tty", "w", errors=_PLAIN) as terminal:
        _write(terminal, text)
    _write(sys.stdout, text)


def _write(stream: TextIO, text: str) -> bool:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # ValueError: the stream is closed
        return False
    return True
