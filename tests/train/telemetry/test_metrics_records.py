"""Reading metrics files: the line that is no record is named, whoever finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.train.telemetry.metrics_records import Record, read_records

GOOD = '{"kind": "end", "time": 1.0}\n'


def read(path: Path) -> list[Record]:
    records: list[Record] = []
    read_records(str(path), records.append)
    return records


def test_a_last_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(GOOD * 2 + '{"kind": "en')
    assert read(path) == [{"kind": "end", "time": 1.0}] * 2


@pytest.mark.parametrize(
    "line", ["", "[]", '{"kind": "end"}', '{"kind": 1, "time": 1.0}', '{"kind": "end", "time": "1"}']
)
def test_a_line_that_is_no_record(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(f"{GOOD}{line}\n{GOOD}")
    with pytest.raises(FileError, match="line 2 is no record of metrics"):
        read(path)


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, AttributeError])
def test_a_record_that_lacks_what_its_kind_has(error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(GOOD * 2)
    seen: list[Record] = []

    def use(record: Record) -> None:
        seen.append(record)
        if len(seen) == 2:
            raise error

    with pytest.raises(FileError, match="line 2 is no record of metrics"):
        read_records(str(path), use)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "run.jsonl")
