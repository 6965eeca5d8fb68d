"""Reads the records of a metrics file, which ``bpt train --metrics`` writes line by line."""

from __future__ import annotations

import json
from typing import Any

from bpt.base.errors import FileError

Record = dict[str, Any]


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
    raise no_record(path, line)


def no_record(path: str, line: int) -> FileError:
    """Return the error of a line that is no record of metrics."""
    return FileError(path, f"line {line} is no record of metrics: bpt train --metrics writes them")
