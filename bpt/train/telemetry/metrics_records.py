"""Reads the records of a metrics file, which ``bpt train --metrics`` writes line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bpt.base.errors import FileError
from bpt.base.user_files import file_errors, read_bytes

Record = dict[str, Any]


def read_records(path: str, use: Callable[[Record], None]) -> None:
    """Call ``use`` with each record of the metrics file at ``path``, in order.

    A last line without its end is left out: a run is writing it.

    Raises:
        FileError: the file cannot be read, or a line is no record of metrics: also if ``use`` raises a ValueError, a
            KeyError, a TypeError or an AttributeError, because the record lacks what its kind has.
    """
    with file_errors(path):
        text = read_bytes(path).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n")[:-1], 1):
        record = record_of(path, number, line)
        try:
            use(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _no_record(path, number) from None


def record_of(path: str, line: int, text: str) -> Record:
    """Return the record that line ``line`` of the file at ``path`` holds.

    Raises:
        FileError: ``text`` is no record of metrics.
    """
    try:
        record = json.loads(text)
        if isinstance(record, dict) and isinstance(record["kind"], str) and isinstance(record["time"], float):
            return record
    except (ValueError, KeyError):
        pass
    raise _no_record(path, line)


def _no_record(path: str, line: int) -> FileError:
    """Return the error of a line that is no record of metrics."""
    return FileError(path, f"line {line} is no record of metrics: bpt train --metrics writes them")
