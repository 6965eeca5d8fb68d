"""Writes a run of the outer layer as CSV files in a folder, and as summary lines for the log."""

from __future__ import annotations

import csv
import io
import math
import os
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from bpt.base.atomic import write_text
from bpt.base.errors import FileError, WriteError
from bpt.train.outer.report.record import AllocationRow, MigrationRow, NodeRow, RunRecord, ServerRow, TestRow, UpdateRow

SHOWN = 16  # nodes up to which each has a log line; for more, a line gives the range
SETTING = "setting"  # the "unit" of settings


@dataclass(frozen=True)
class Quantity:
    """A row of ``summary.csv``."""

    name: str
    value: str | int | float
    unit: str


def quantities(record: RunRecord) -> Iterator[Quantity]:
    """Yield the run's quantities; unknown ones are NaN."""
    yield Quantity("title", record.title, SETTING)
    for name, value in record.facts.items():
        yield Quantity(name, value, SETTING)
    yield Quantity("weights", record.weights, "bytes")
    yield Quantity("iterations", record.exchanges, "1")
    yield Quantity("execution_time", record.execution_time, "s")
    yield Quantity("nodes", len(record.workers), "1")
    yield Quantity("updates", len(record.updates), "1")
    yield Quantity("versions", max((row.version for row in record.updates), default=0), "1")
    yield Quantity("computed", math.fsum(row.computed_seconds for row in record.nodes), "s")
    yield Quantity("waited", math.fsum(row.waited_seconds for row in record.nodes), "s")
    yield Quantity("idle_at_end", math.fsum(row.idle_at_end_seconds for row in record.nodes), "s")
    yield Quantity("computed_share", record.computed_share(), "1")
    yield Quantity("waited_share", record.waited_share(), "1")
    yield Quantity("waiting_time_eq_8", record.waiting_time(), "s")
    yield Quantity("balance_index", record.balance_index(), "1")
    yield Quantity("bytes_counted", record.bytes_counted(), "bytes")
    yield Quantity("bytes_eq_11", record.bytes_expected(), "bytes")
    yield Quantity("mean_staleness", _mean([row.staleness for row in record.updates]), "versions")
    yield Quantity("max_staleness", max((row.staleness for row in record.updates), default=0), "versions")
    yield Quantity("mean_factor", _mean([row.factor for row in record.updates]), "1")
    last = record.tests_of()[-1:]
    yield Quantity("last_accuracy", last[0].accuracy if last else math.nan, "1")
    yield Quantity("best_accuracy", record.best_accuracy(), "1")
    yield Quantity("last_auc", last[0].auc if last else math.nan, "1")


def summary_lines(record: RunRecord) -> Iterator[str]:
    """Yield the log lines for the end of a run."""
    versions = max((row.version for row in record.updates), default=0)
    lost = f" ({record.lost} lost)" if record.lost else ""
    yield (
        f"Report: execution time {record.execution_time:.4g} s, {_many(len(record.workers), 'node')}{lost}, "
        f"{_many(len(record.updates), 'submission')}, {_many(versions, 'version')}"
    )
    yield from _node_lines(record)
    for row in record.servers:
        yield (
            f"Report: parameter server on rank {row.rank} ({row.host}): {row.elements:,} elements, "
            f"{_many(int(row.updates), 'update')}, {int(row.bytes_sent):,} bytes sent, {int(row.bytes_received):,} "
            f"received, working {row.merging_seconds:.4g} s, waiting {row.waiting_seconds:.4g} s "
            f"({_part(row.waiting_seconds, record)})"
        )
    if record.migration:
        moved = sum(row.samples for row in record.migration)
        yield f"Report: {_many(moved, 'sample')} migrated between workers, in {_many(len(record.migration), 'move')}"
    yield (
        f"Report: waiting time by Eq. 8 {record.waiting_time():.4g} s (if all wait for the slowest in each pass), "
        f"balance index {record.balance_index():.4f}"
    )
    if record.senders:
        yield (
            f"Report: {record.bytes_counted():,} bytes of weights counted, {record.bytes_expected():,} by Eq. 11 "
            f"(2 · {record.weights:,} · {_many(record.senders, 'node')} · {_many(record.exchanges, 'iteration')})"
            f"{', which lets the lost ones submit to the end' if record.lost else ''}"
        )
    if record.updates:
        staleness = [row.staleness for row in record.updates]
        factor = _mean([row.factor for row in record.updates])
        tail = "" if math.isnan(factor) else f"; factor {factor:.4g} on average"
        yield f"Report: staleness {fmean(staleness):.3g} on average, {max(staleness)} at most{tail}"
    if not math.isnan(record.best_accuracy()):
        last = record.tests_of()[-1]
        auc = "" if math.isnan(last.auc) else f", AUC {last.auc:.4f}"
        yield f"Report: accuracy {last.accuracy:.4f}{auc} in the last test, {record.best_accuracy():.4f} in the best"


def _node_lines(record: RunRecord) -> Iterator[str]:
    nodes = sorted(record.nodes, key=lambda row: row.worker)
    if len(nodes) <= SHOWN:
        for row in nodes:
            end = f"idle at the end {row.idle_at_end_seconds:.4g} s"
            if not math.isnan(row.lost):
                end = f"lost after {row.lost:.4g} s"
            yield (
                f"Report: worker {row.worker} ({row.host}): {_many(row.samples_allocated, 'sample')}, "
                f"{row.passes:g} pass{'es' * (row.passes != 1)}, computing {row.computed_seconds:.4g} s, "
                f"waiting {row.waited_seconds:.4g} s ({_part(row.waited_seconds, record)}), {end}"
            )
        return
    samples, computed, waited, idle = (
        [float(getattr(row, name)) for row in nodes]
        for name in ("samples_allocated", "computed_seconds", "waited_seconds", "idle_at_end_seconds")
    )
    yield (
        f"Report: a worker (least, mean, most): {_range(samples)} samples, computing {_range(computed)} s, waiting "
        f"{_range(waited)} s ({record.waited_share():.1%} on average), idle at the end {_range(idle)} s"
    )


def _part(seconds: float, record: RunRecord) -> str:
    return f"{seconds / record.execution_time:.1%}" if record.execution_time else "0.0%"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.4g}, {fmean(values):.4g}, {max(values):.4g}"


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the known values; NaN if there is none."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


Row = TypeVar("Row", UpdateRow, NodeRow, TestRow, AllocationRow, ServerRow, MigrationRow, Quantity)


def write_csv(record: RunRecord, folder: str | os.PathLike[str]) -> None:
    """Write updates.csv, nodes.csv, tests.csv, allocation.csv and summary.csv (name, value, unit).

    If there are parameter servers apart from the main server, also write servers.csv. If samples migrated, also write
    migration.csv.

    The columns are the attributes of the rows, and numbers have all their digits; NaN is an empty cell. Each file is
    written atomically, and replaces an older one. A missing folder is created.

    Raises:
        WriteError: a file or the folder could not be written.
    """
    place = make_folder(folder)
    _write(place / "updates.csv", UpdateRow, record.updates)
    _write(place / "nodes.csv", NodeRow, record.nodes)
    _write(place / "tests.csv", TestRow, record.tests)
    _write(place / "allocation.csv", AllocationRow, record.allocation)
    if record.servers or (place / "servers.csv").exists():  # an earlier run may have written it
        _write(place / "servers.csv", ServerRow, record.servers)
    if record.migration or (place / "migration.csv").exists():
        _write(place / "migration.csv", MigrationRow, record.migration)
    _write(place / "summary.csv", Quantity, quantities(record))


def read_csv(folder: str | os.PathLike[str]) -> RunRecord:
    """Return the run in the files of ``write_csv``, to compare it with others.

    Raises:
        FileError: a file is missing, or has another form; the message says where.
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
        servers=_read_if_there(place / "servers.csv", ServerRow),
        migration=_read_if_there(place / "migration.csv", MigrationRow),
    )


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder, created if it is missing.

    Raises:
        WriteError: the folder could not be created.
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
    write_text(path, text.getvalue())


def _read_if_there(path: Path, kind: type[Row]) -> list[Row]:
    return _read(path, kind) if path.exists() else []


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
