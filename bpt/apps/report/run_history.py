"""Reads metrics files of ``bpt train --metrics`` as what a page of results shows of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from bpt.base.errors import FileError
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.train.telemetry.metrics_records import Record, no_record, record_of


@dataclass
class MeasuredCurve:
    """Values of one quantity: ``points`` are (iteration, seconds since the run began, value)."""

    points: list[tuple[int, float, float]] = field(default_factory=list)


@dataclass
class RunHistory:
    """The content of a metrics file.

    Attributes:
        start: the record of the last start, empty if the file has none.
        curves: by name: ``loss``, ``learning rate``, ``test accuracy`` and so on.
        ranks: the loads of the ranks at the last displayed iteration.
        snapshot: the last snapshot; "" if there is none.
        seconds: from the first record to the last.
        ended: whether the run has closed its file.
    """

    name: str
    start: Record = field(default_factory=dict)
    curves: dict[str, MeasuredCurve] = field(default_factory=dict)
    ranks: list[Record] = field(default_factory=list)
    snapshot: str = ""
    seconds: float = 0.0
    ended: bool = False

    def add(self, name: str, iteration: int, seconds: float, value: object) -> None:
        """Append a point, unless ``value`` is no single finite number."""
        if isinstance(value, int | float) and math.isfinite(value):
            self.curves.setdefault(name, MeasuredCurve()).points.append((iteration, seconds, float(value)))

    def forget_after(self, iteration: int) -> None:
        """Drop the points after ``iteration``, which a resumed run repeats."""
        for curve in self.curves.values():
            curve.points = [point for point in curve.points if point[0] <= iteration]


def read_run(path: str) -> RunHistory:
    """Return the run whose metrics are in ``path``.

    Raises:
        FileError: it cannot be read, or a line is no record of metrics. A last line without its end is ignored.
    """
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except UnreadableError as error:
        raise FileError(path, str(error)) from None
    run = RunHistory(Path(path).name.removesuffix(".jsonl"))
    begin: float | None = None
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            record = record_of(path, number, line)
            begin = record["time"] if begin is None else begin
            run.seconds = record["time"] - begin
            _add(run, record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise no_record(path, number) from None
    if not any(curve.points for curve in run.curves.values()):
        raise FileError(path, "has no displayed iteration and no test yet")
    return run


def _add(run: RunHistory, record: Record) -> None:
    kind, iteration = record["kind"], int(record.get("iteration", 0))
    run.ended = kind == "end"
    if kind == "start":
        run.start = record
        run.forget_after(iteration)
    elif kind == "train":
        run.add("loss", iteration, run.seconds, record["loss"])
        run.add("learning rate", iteration, run.seconds, record["lr"])
        run.ranks = [dict(each) for each in record["ranks"]]
    elif kind == "test":
        prefix = f"test #{record['net']} " if record["net"] else "test "
        for name, value in record["outputs"].items():
            run.add(prefix + name, iteration, run.seconds, value)
    elif kind == "snapshot":
        run.snapshot = record["path"]
