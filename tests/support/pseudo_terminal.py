"""A pseudo-terminal, and what stands on its screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT = 80, 24
# Ctrl-C is for the program whose terminal it is.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_PART = re.compile(r"\x1b\[(\??)(\d*)([A-Za-z])|[^\x1b]")


def set_size(descriptor: int, width: int, height: int = HEIGHT) -> None:
    """Tell a terminal its size."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class Terminal:
    """A pseudo-terminal that is stderr within the block."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._screen, end = pty.openpty()
        set_size(end, WIDTH)
        self.file = os.fdopen(end, "w", buffering=1, encoding=encoding)

    def __enter__(self) -> Terminal:
        self._before, sys.stderr = sys.stderr, self.file
        return self

    def __exit__(self, *error: object) -> None:
        sys.stderr = self._before
        with contextlib.suppress(OSError):  # what could not be written to a closed one
            self.file.close()

    def close_window(self) -> None:
        os.close(self._screen)

    def read(self) -> str:
        """All that was written since the last time."""
        self.file.write("\0")
        self.file.flush()
        text = b""
        while not text.endswith(b"\0"):
            text += os.read(self._screen, 65536)
        return text[:-1].decode()


def screen(text: str) -> list[str]:
    """The lines that stand on a terminal of any height after ``text``; it does not wrap lines."""
    lines = [""]
    row = column = 0
    for part in _PART.finditer(text):
        private, count, command = part[1], part[2], part[3]
        if command == "A":
            row -= int(count or 1)
        elif command == "J":  # to the end of the screen
            lines[row:] = [lines[row][:column]]
        elif command:
            assert private, f"an unknown control sequence: {part[0]!r}"
        elif part[0] == "\r":
            column = 0
        elif part[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + part[0] + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


class ProgramOnTerminal:
    """A program whose standard streams are a terminal of its own, as a user's; it is killed should it hang."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._screen, end = pty.openpty()
        set_size(end, WIDTH)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *words], cwd=folder, stdin=end, stdout=end, stderr=end,
            env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(end)
        self._watchdog = threading.Timer(180, self._process.kill)
        self._watchdog.start()
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Read until ``text`` has been written."""
        while text not in self.text and self._read():
            pass
        if text not in self.text:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{text!r} did not come:\n{self.text}")

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def end(self) -> int:
        """Read the rest; the exit status."""
        while self._read():
            pass
        os.close(self._screen)
        status = self._process.wait()
        self._watchdog.cancel()
        assert "Traceback" not in self.text, self.text
        return status

    def _read(self) -> bool:
        try:
            found = os.read(self._screen, 65536)
        except OSError:  # nobody has the terminal any more
            return False
        self.text += found.decode(errors="replace")
        return bool(found)
