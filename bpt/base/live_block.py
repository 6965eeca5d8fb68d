"""LiveBlock: a few lines at the bottom of a terminal that are drawn again and again, below ordinary output.

The cursor rests on an empty line above the block. So what other programs write goes there, and a block whose lines
another width of the window has wrapped is erased as a whole: everything below the cursor.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TextIO, cast

from bpt.base.glog import wants_stderr
from bpt.base.terminal import is_same_file

_ERASE = "\r\x1b[J"  # to the start of the line, then all from there to the end of the screen
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_PERIOD = 0.25  # seconds between two drawings
_SIZE = os.terminal_size((80, 24))  # of a terminal that does not know its size
_OF_NOTEBOOK = "JPY_PARENT_PID"  # set for Jupyter's kernels
_PLAIN = str.maketrans({"█": "#", "·": "-"})

Content = Callable[[int], Sequence[str]]
"""Returns the lines of the block, in at most so many columns."""


LOG_TO_STDERR = "-"
"""The value of ``--log`` that leaves the log on stderr, also if that is a terminal."""


def is_live(log: str) -> bool:
    """Return whether a block takes the place of the log on stderr, given the value of ``--log``.

    It does if stderr is a terminal that can move its cursor, unless ``--log`` or glog's settings want the log there.
    """
    return log != LOG_TO_STDERR and can_be_drawn(sys.stderr) and not wants_stderr()


def can_be_drawn(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``stream`` is a terminal that can move its cursor.

    The output of a cell of a notebook (``!bpt train``) is a terminal by name only.
    """
    can_move = environ.get("TERM", "") not in ("", "dumb", "unknown") and _OF_NOTEBOOK not in environ
    return stream.isatty() and can_move


class LiveBlock:
    """Draws lines at the bottom of a terminal, in a thread, for the time of the context.

    Python's text for stderr, and for stdout if it is the same terminal, goes above the block meanwhile. A terminal that
    is closed ends the drawing, and nothing else.

    Args:
        content: returns the lines.
        terminal: the stream that is drawn to; by default stderr.
    """

    def __init__(self, content: Content, terminal: TextIO | None = None) -> None:
        self._content = content
        self._terminal = terminal or sys.stderr
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live block", daemon=True)
        self._streams: tuple[TextIO, TextIO] | None = None

    def __enter__(self) -> LiveBlock:
        self._streams = sys.stdout, sys.stderr
        if is_same_file(sys.stdout, self._terminal):
            sys.stdout = cast(TextIO, _TextAbove(self, self._terminal))
        sys.stderr = cast(TextIO, _TextAbove(self, self._terminal))
        self.draw()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        assert self._streams
        for stream in cast(tuple[object, object], (sys.stdout, sys.stderr)):
            if isinstance(stream, _TextAbove):
                stream.end_line()
        sys.stdout, sys.stderr = self._streams
        self._erase()

    def draw(self) -> None:
        """Draw the block as it is now; nothing while another program has the terminal."""
        if not self._is_in_foreground():
            return
        width, height = self._size()
        # One column less than there are, and one line besides the empty one: a full screen would scroll.
        lines = [line.translate(_PLAIN) if self._is_plain else line for line in self._content(width - 1)][: height - 2]
        below = "".join(f"\n{line}" for line in lines)
        self._write(f"{_ERASE}{_NO_WRAP}{below}{_WRAP}" + (f"\x1b[{len(lines)}A\r" if lines else ""))

    def print_above(self, text: str) -> None:
        """Write whole lines above the block."""
        with self._lock:
            self._erase()
            self._write(text)
            if not self._ended.is_set():
                self.draw()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            self.draw()

    def _erase(self) -> None:
        if self._is_in_foreground():
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        # A terminal that is closed is no reason to end a run.
        with self._lock, suppress(OSError, ValueError):
            self._terminal.write(text)
            self._terminal.flush()

    @property
    def _is_plain(self) -> bool:
        try:
            "█·".encode(self._terminal.encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return True
        return False

    def _size(self) -> os.terminal_size:
        """Return the columns and lines of the terminal, which may have changed since the last call."""
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(self._terminal.fileno())
            if size.columns and size.lines:
                return size
        return _SIZE

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._terminal.fileno()) == os.getpgrp()
        except (OSError, ValueError):  # it is not this process's own terminal, as under "bpt run"
            return True


class _TextAbove(io.TextIOBase):
    """A stream whose whole lines go above the block."""

    def __init__(self, block: LiveBlock, terminal: TextIO) -> None:
        self._block = block
        self._under = terminal
        self._line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # only read
        return self._under.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._under.errors

    def write(self, text: str) -> int:
        whole, end, self._line = (self._line + text).rpartition("\n")
        if end:
            self._block.print_above(f"{whole}\n")
        return len(text)

    def end_line(self) -> None:
        """Write what has no end of a line yet."""
        if self._line:
            self.write("\n")

    def flush(self) -> None:
        """Leave a line that has not ended."""

    def fileno(self) -> int:
        return self._under.fileno()

    def isatty(self) -> bool:
        return self._under.isatty()

    def writable(self) -> bool:
        return True
