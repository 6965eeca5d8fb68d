"""Log lines in glog's shape on stderr, which Caffe's own log parsers read; and rows of cells as lines of a table."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from bpt.base.errors import WriteError
from bpt.base.glog import GlogSettings
from bpt.base.terminal import say

LOG = logging.getLogger("bpt")


class GlogFormatter(logging.Formatter):
    """Formats a record as glog does; further lines of a text stand alone, as in Caffe's dumps."""

    def format(self, record: logging.LogRecord) -> str:
        now = time.localtime(record.created)
        stamp = f"{time.strftime('%m%d %H:%M:%S', now)}.{int(record.created % 1 * 1e6):06d}"
        place = f"{record.process} {record.filename}:{record.lineno}"
        return f"{record.levelname[0]}{stamp} {place}] {record.getMessage()}"


class StderrHandler(logging.Handler):
    """Writes to stderr, above the progress bar if there is one.

    A run is worth more than its log: if that cannot be written, it is said at once where it can be, the run goes on,
    and fails at its end. Lines are tried again: some may be written once there is room on the disk.

    Attributes:
        failure: why a line could not be written; "": all were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure = ""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except (OSError, ValueError) as error:
            if not self.failure:
                self.failure = (isinstance(error, OSError) and error.strerror) or str(error)
                say(f"error: the log cannot be written to stderr: {self.failure}; what runs goes on, and fails then\n")


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Return a scope in which bpt's warnings go to stderr, as glog's do, if nothing else receives them.

    A program that uses bpt as a library and has not configured ``logging`` would not see them otherwise.
    """
    if _is_heard():
        yield
        return
    handler = StderrHandler()
    handler.setFormatter(GlogFormatter())
    handler.setLevel(logging.WARNING)
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


def _is_heard() -> bool:
    """Return whether a handler, of bpt's log or of one above it, receives what is logged."""
    logger: logging.Logger | None = LOG
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class LogFileHandler(logging.Handler):
    """Writes to the file in glog's ``log_dir``; a line that cannot be written fails the run at its end.

    Attributes:
        failure: why a line could not be written; "": all were.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        super().__init__()
        self.path, self.failure = path, ""
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record) + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:
            self.failure = self.failure or (isinstance(error, OSError) and error.strerror) or str(error)

    def close(self) -> None:
        self._file.close()
        super().close()


def check_log() -> None:
    """Raise a WriteError if some of the log could not be written."""
    for handler in LOG.handlers:
        if isinstance(handler, StderrHandler) and handler.failure:
            raise WriteError("the log", f"not all of it, to stderr: {handler.failure}")
        if isinstance(handler, LogFileHandler) and handler.failure:
            raise WriteError(handler.path, f"not all of the log: {handler.failure}")


def start_logging(level: int = logging.INFO, first: bool = True) -> None:
    """Send bpt's log to stderr, and where glog's settings in the environment say.

    A program that uses bpt as a library configures ``logging`` itself.

    Args:
        first: whether this is the first of its ranks; the others log nothing.
    """
    settings = GlogSettings.read()
    stderr = StderrHandler()
    stderr.setLevel(settings.least_on_stderr)
    handlers: list[logging.Handler] = [stderr]
    if first and (file := settings.open_file()):
        handlers.append(LogFileHandler(*file))
    for handler in handlers:
        handler.setFormatter(GlogFormatter())
    for old in LOG.handlers:
        if isinstance(old, LogFileHandler):
            old.close()
    LOG.handlers[:] = handlers
    LOG.setLevel(max(level, settings.least) if first else logging.CRITICAL + 1)
    LOG.propagate = False


def take_over_logging() -> None:
    """Log from now on, on a rank that ``start_logging`` keeps silent: the first one is gone."""
    if LOG.level > logging.CRITICAL:
        LOG.setLevel(GlogSettings.read().least)


def log_lines(log: logging.Logger, lines: Iterable[object], level: int = logging.INFO) -> None:
    """Log each line, as of the caller's place."""
    for line in lines:
        log.log(level, "%s", line, stacklevel=2)


def number(value: float) -> str:
    """Return a number as Caffe prints it: six significant digits."""
    return f"{value:g}"


def columns(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the ``rows``, the first of which is the head, with cells lined up.

    Args:
        left: so many columns hold text and stand at the left; the others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
