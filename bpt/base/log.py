"""Log lines in glog's format on stderr, which Caffe's log parsers read, and tables as lines of text."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from bpt.base.errors import WriteError
from bpt.base.glog import GlogSettings, wants_stderr
from bpt.base.terminal import allow_all_characters, is_same_file, say

LOG = logging.getLogger("bpt")

_IS_RESULT = "is_bpt_result"  # an attribute of records


class GlogFormatter(logging.Formatter):
    """Formats a record as glog does; further lines of a text get no prefix, as in Caffe's dumps."""

    def format(self, record: logging.LogRecord) -> str:
        now = time.localtime(record.created)
        stamp = f"{time.strftime('%m%d %H:%M:%S', now)}.{int(record.created % 1 * 1e6):06d}"
        place = f"{record.process} {record.filename}:{record.lineno}"
        return f"{record.levelname[0]}{stamp} {place}] {record.getMessage()}"


class WarningFormatter(logging.Formatter):
    """Formats a record for people: "warning: …"."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


class StderrHandler(logging.Handler):
    """Writes to stderr, above the progress bar if there is one.

    If the log cannot be written, this is reported at once wherever possible. The run continues, and fails at its end.
    Later lines are tried again, because there may be space on the disk then.

    Attributes:
        failure: why a line could not be written; "": all were.
        prints_results: whether ``log_results`` prints to stdout, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure = ""
        self.prints_results = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except (OSError, ValueError) as error:
            if not self.failure:
                self.failure = (isinstance(error, OSError) and error.strerror) or str(error)
                why = f"{self.failure}; the run continues, and fails at its end"
                say(f"error: the log cannot be written to stderr: {why}\n")


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Send bpt's warnings to stderr for the time of the context, as glog does, if no other handler receives them.

    A program that uses bpt as a library without configuring ``logging`` would not see them otherwise.
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
    """Return whether a handler of bpt's log, or of a log above it, receives records."""
    logger: logging.Logger | None = LOG
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class LogFileHandler(logging.Handler):
    """Writes to a file; a line that cannot be written fails the run at its end.

    Attributes:
        failure: why a line could not be written; "": all were.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        super().__init__()
        self.path, self.failure = path, ""
        self._file = file
        allow_all_characters(file)

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
    """Raise a WriteError if a line of the log could not be written."""
    for handler in LOG.handlers:
        if isinstance(handler, StderrHandler) and handler.failure:
            raise WriteError("the log", f"not all of it, to stderr: {handler.failure}")
        if isinstance(handler, LogFileHandler) and handler.failure:
            raise WriteError(handler.path, f"not all of the log: {handler.failure}")


@dataclass(frozen=True)
class LogPlaces:
    """The places of the log besides glog's settings.

    Attributes:
        handlers: write the log, too.
        is_elsewhere: whether the log has a better place than stderr, which then gets only warnings and errors, as plain
            lines.
        results_on_stdout: whether stdout gets results, too. If it is the terminal that gets the log, results go there
            only once; if it is the log's own file or pipe, it gets nothing, for the sake of programs that read the log.
    """

    handlers: tuple[logging.Handler, ...] = ()
    is_elsewhere: bool = False
    results_on_stdout: bool = False


def start_logging(level: int = logging.INFO, first: bool = True, places: LogPlaces | None = None) -> None:
    """Send bpt's log to stderr, and to the places that glog's settings in the environment name.

    A program that uses bpt as a library configures ``logging`` itself.

    Args:
        level: the lowest level to log.
        first: whether this is the first rank; the others log nothing.
        places: further places of the first rank's log.
    """
    places = places or LogPlaces()
    settings = GlogSettings.read(is_elsewhere=places.is_elsewhere)
    stderr = StderrHandler()
    stderr.setLevel(settings.least_on_stderr)
    handlers: list[logging.Handler] = [stderr]
    if first and (file := settings.open_file()):
        handlers.append(LogFileHandler(*file))
    if first:
        handlers += places.handlers
    for handler in handlers:
        handler.setFormatter(GlogFormatter())
    if places.is_elsewhere and settings.least_on_stderr >= logging.WARNING:
        stderr.setFormatter(WarningFormatter())
    is_common = is_same_file(sys.stdout, sys.stderr)
    is_plain_terminal = is_common and sys.stdout.isatty() and not wants_stderr()
    prints = first and places.results_on_stdout and (is_plain_terminal or not is_common)
    if prints and is_common:
        stderr.addFilter(lambda record: not hasattr(record, _IS_RESULT))
    stderr.prints_results = prints
    for old in LOG.handlers:
        if isinstance(old, LogFileHandler):
            old.close()
    LOG.handlers[:] = handlers
    LOG.setLevel(max(level, settings.least) if first else logging.CRITICAL + 1)
    LOG.propagate = False


def take_over_logging() -> None:
    """Start logging on a rank that ``start_logging`` silenced, because the first rank is lost."""
    if LOG.level > logging.CRITICAL:
        LOG.setLevel(GlogSettings.read().least)


def log_lines(log: logging.Logger, lines: Iterable[object], level: int = logging.INFO) -> None:
    """Log each line, as of the caller's place."""
    for line in lines:
        log.log(level, "%s", line, stacklevel=2)


def log_results(log: logging.Logger, lines: Iterable[object]) -> None:
    """Log each line, as of the caller's place, and print it to stdout where LogPlaces says so, without a prefix."""
    prints = any(isinstance(handler, StderrHandler) and handler.prints_results for handler in LOG.handlers)
    for line in lines:
        log.info("%s", line, stacklevel=2, extra={_IS_RESULT: True})
        if prints:
            print(line)


def number(value: float) -> str:
    """Return a number as Caffe prints it: six significant digits."""
    return f"{value:g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 rank``, ``2 ranks``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def columns(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the ``rows`` as lines with aligned cells; the first row is the head.

    Args:
        rows: the cells.
        left: the number of first columns that hold text and are aligned left. The others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
