"""Reads metrics files of ``bpt train --metrics`` as what a page of results shows of a run."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bpt.base.errors import FileError
from bpt.train.telemetry.metrics_records import Record, read_records

_MEANINGLESS = "metrics"


@dataclass
class MeasuredCurve:
    """Values of one quantity: ``points`` are (iteration, seconds since the run began, value)."""

    points: list[tuple[int, float, float]] = field(default_factory=list)


@dataclass
class RunHistory:
    """The content of a metrics file.

    Attributes:
        start: the record of the last start, empty if the file has none.
        first: the lowest iteration at which it has started; ``None``: the file has no start.
        curves: by name: ``loss``, ``learning rate``, ``test accuracy`` and so on.
        ranks: the loads of the ranks at the last displayed iteration.
        snapshot: the last snapshot; "" if there is none.
        begin: the time of the first record, in seconds since 1970; ``None`` without records.
        seconds: from the first record to the last.
        ended: whether the run has closed its file.
    """

    name: str
    start: Record = field(default_factory=dict)
    first: int | None = None
    curves: dict[str, MeasuredCurve] = field(default_factory=dict)
    ranks: list[Record] = field(default_factory=list)
    snapshot: str = ""
    begin: float | None = None
    seconds: float = 0.0
    ended: bool = False

    def take(self, record: Record) -> None:
        """Add the content of the next record."""
        self.begin = record["time"] if self.begin is None else self.begin
        self.seconds = record["time"] - self.begin
        kind, iteration = record["kind"], int(record.get("iteration", 0))
        self.ended = kind == "end"
        if kind == "start":
            self.start = record
            self.first = iteration if self.first is None else min(self.first, iteration)
            self.forget_after(iteration)
        elif kind == "train":
            self.add("loss", iteration, self.seconds, record["loss"])
            self.add("learning rate", iteration, self.seconds, record["lr"])
            self.ranks = [dict(each) for each in record["ranks"]]
        elif kind == "test":
            prefix = f"test #{record['net']} " if record["net"] else "test "
            for name, value in record["outputs"].items():
                self.add(prefix + name, iteration, self.seconds, value)
        elif kind == "snapshot":
            self.snapshot = record["path"]

    def add(self, name: str, iteration: int, seconds: float, value: object) -> None:
        """Append a point, unless ``value`` is no single finite number."""
        if isinstance(value, int | float) and math.isfinite(value):
            self.curves.setdefault(name, MeasuredCurve()).points.append((iteration, seconds, float(value)))

    def forget_after(self, iteration: int) -> None:
        """Drop the points after ``iteration``, which a resumed run repeats."""
        for curve in self.curves.values():
            curve.points = [point for point in curve.points if point[0] <= iteration]


def run_names(paths: Sequence[str]) -> list[str]:
    """Return a name for each metrics file: the file's, without ``.jsonl``, and as many folders as tell runs apart.

    ``metrics.jsonl``, the name in the folders of ``bpt compare``, says nothing, so the folder's name stands for it.
    """
    parts = []
    for path in paths:
        *folders, name = Path(os.path.abspath(path)).parts[1:]
        stem = name.removesuffix(".jsonl")
        parts.append([*folders, stem] if stem != _MEANINGLESS or not folders else folders)
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(part[-length:]) for part, length in zip(parts, lengths, strict=True)]
        seen = Counter(names)
        longer = [
            min(length + (seen[name] > 1), len(part)) for name, part, length in zip(names, parts, lengths, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer


def read_run(path: str, name: str = "") -> RunHistory:
    """Return the run whose metrics are in ``path``, by the name ``name``, or that of ``run_names``.

    Raises:
        FileError: it cannot be read, or a line is no record of metrics. A last line without its end is ignored.
    """
    run = RunHistory(name or run_names([path])[0])
    read_records(path, run.take)
    if not any(curve.points for curve in run.curves.values()):
        raise FileError(path, "has no displayed iteration and no test yet")
    return run
