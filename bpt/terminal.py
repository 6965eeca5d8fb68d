"""The standard streams where they are closed, full or broken: what must be said is said where somebody may read it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def mend_streams() -> None:
    """Open what the caller has closed of stdin, stdout and stderr, as nothing.

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


def say(text: str) -> None:
    """Write whole lines to stderr; if it takes none, to the terminal, if there is one, and to stdout."""
    if _write(sys.stderr, text):
        return
    with suppress(OSError), open("/dev/tty", "w") as terminal:
        _write(terminal, text)
    _write(sys.stdout, text)


def _write(stream: TextIO, text: str) -> bool:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        return False
    return True
