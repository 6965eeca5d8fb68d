"""The standard streams where they are closed, full, broken or without Unicode.

What must be said is said where somebody may read it.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_PLAIN = "bpt-plain"  # an error handler for encoding
_REPLACED = ("strict", "surrogateescape", "backslashreplace")  # any other one is somebody's choice
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
    """Open what the caller has closed of stdin, stdout and stderr, as nothing; let all characters be written.

    Else the next file that is opened, perhaps a snapshot, would take the place, and get what libraries write to stderr.
    Python has no object for a closed stream: what is for stderr then goes to stdout.
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
    """Let ``stream`` write something similar for a character that its encoding does not have, where it would fail.

    Terminals and pipes may be ASCII or Latin-1 (``LANG``, ``PYTHONIOENCODING``). A name of a file that is no UTF-8 is
    written as it is.
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


def say(text: str) -> None:
    """Write whole lines to stderr; if it takes none, to the terminal, if there is one, and to stdout."""
    if _write(sys.stderr, text):
        return
    with suppress(OSError), open("/dev/tty", "w", errors=_PLAIN) as terminal:
        _write(terminal, text)
    _write(sys.stdout, text)


def _write(stream: TextIO, text: str) -> bool:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        return False
    return True
