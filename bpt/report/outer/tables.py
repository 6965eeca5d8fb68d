"""A run of the outer layer as CSV files in a folder."""

from __future__ import annotations

import csv
import io
import math
import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from bpt.errors import FileError, WriteError
from bpt.proto.atomic import atomic_file
from bpt.report.outer.record import AllocationRow, NodeRow, RunRecord, TestRow, UpdateRow
from bpt.report.outer.run_summary import SETTING, Quantity, quantities

Row = TypeVar("Row", UpdateRow, NodeRow, TestRow, AllocationRow, Quantity)


def write_csv(record: RunRecord, folder: str | os.PathLike[str]) -> None:
    """Write updates.csv, nodes.csv, tests.csv, allocation.csv and summary.csv (name, value, unit).

    The columns are the attributes of the rows, and numbers have all their digits; NaN is an empty cell. Each file is
    there whole or not at all, and takes the place of an older one. The folder is made if there is none.

    Raises:
        WriteError: a file or the folder could not be written.
    """
    place = make_folder(folder)
    _write(place / "updates.csv", UpdateRow, record.updates)
    _write(place / "nodes.csv", NodeRow, record.nodes)
    _write(place / "tests.csv", TestRow, record.tests)
    _write(place / "allocation.csv", AllocationRow, record.allocation)
    _write(place / "summary.csv", Quantity, quantities(record))


def read_csv(folder: str | os.PathLike[str]) -> RunRecord:
    """The run that ``write_csv`` wrote, to compare it with others.

    Raises:
        FileError: a file is missing, or not what ``write_csv`` writes; it says where.
    """
    place = Path(folder)
    path = place / "summary.csv"
    rows = _read(path, Quantity)
    settings = {row.name: str(row.value) for row in rows if row.unit == SETTING}
    numbers = {row.name: str(row.value) for row in rows if row.unit != SETTING}
    for name in ("weights", "iterations", "execution_time"):
        if name not in numbers:
            raise FileError(path, f'is no summary of a run: it has no row "{name}"')
    return RunRecord(
        title=settings.pop("title", ""),
        weights=int(_number(numbers["weights"], path, "weights", whole=True)),
        iterations=int(_number(numbers["iterations"], path, "iterations", whole=True)),
        seconds=_number(numbers["execution_time"], path, "execution_time"),
        facts=settings,
        updates=_read(place / "updates.csv", UpdateRow),
        nodes=_read(place / "nodes.csv", NodeRow),
        tests=_read(place / "tests.csv", TestRow),
        allocation=_read(place / "allocation.csv", AllocationRow),
    )


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, which is made if there is none.

    Raises:
        WriteError: it could not be made.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(folder, error.strerror or error) from error
    return place


def _write(path: Path, kind: type[Row], rows: Iterable[Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [column.name for column in fields(kind)]
    cells_of = attrgetter(*columns)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells_of(row)])
    with atomic_file(path) as file:
        file.write(text.getvalue().encode())


def _read(path: Path, kind: type[Row]) -> list[Row]:
    types = {column: _TYPES[hint] for column, hint in typing.get_type_hints(kind).items()}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [column for column in types if column not in (reader.fieldnames or ())]
            if missing:
                raise FileError(path, f"is no such table of a run: it has no column {missing[0]}")
            return [_row(kind, types, row, path, reader.line_num) for row in reader]
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(path, f"is no table of a run: {error}") from None


def _row(kind: type[Row], types: Mapping[str, type], cells: Mapping[str, str | None], path: Path, line: int) -> Row:
    values: dict[str, Any] = {}
    for column, wanted in types.items():
        cell = cells[column]
        if cell is None:
            raise FileError(f"{path}:{line}", f"the row ends before the column {column}")
        values[column] = cell if wanted is str else wanted(_number(cell, path, column, line, whole=wanted is int))
    return kind(**values)


def _number(cell: str, path: Path, column: str, line: int = 0, whole: bool = False) -> float:
    try:
        return int(cell) if whole else float(cell or "nan")
    except ValueError:
        where = f"{path}:{line}" if line else path
        raise FileError(where, f'{column} is "{cell[:40]}", which is no {"whole " * whole}number') from None


_TYPES: Mapping[object, type] = {int: int, float: float, str: str, str | int | float: str}
