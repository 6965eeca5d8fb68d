"""Read training logs of bpt and Caffe: losses, outputs of the nets and learning rates, by iteration."""

from __future__ import annotations

import csv
import datetime
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bpt.base.atomic import write_text
from bpt.base.errors import FileError
from bpt.base.user_files import file_errors, read_bytes

ITERATION, SECONDS, RATE = "NumIters", "Seconds", "LearningRate"
# The lookahead rejects what a damaged line has in place of a number, such as 0.5x.
_NUMBER = r"([-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|nan|inf))(?![\w.])"
_COUNT = r"([0-9]{1,18})(?![0-9])"
# glog's head of a line: I1120 18:05:09.083197 or, since its version 0.5, I20261120 18:05:09.083197.
_TIME = re.compile(r"^[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+) ")
_ITERATION = re.compile(rf"Iteration {_COUNT}")
_LOSS = re.compile(rf"Iteration \d+(?: \([^()]*\))?, loss = {_NUMBER}")
_LEARNING_RATE = re.compile(rf"Iteration \d+, lr = {_NUMBER}")
_TESTING = re.compile(rf"Testing net \(#{_COUNT}\)")
_OUTPUT = re.compile(rf"(Train|Test) net output #{_COUNT}: (\S+) = {_NUMBER}( \(\*)?")
_LEAP = 2000  # a leap year, which has all days, for logs without years


@dataclass
class LogRow:
    """The outputs of a net at an iteration.

    Attributes:
        iteration: the iteration.
        seconds: the seconds since the run began; NaN if the log has no times.
        rate: the learning rate; NaN if the log has none.
        values: the outputs by name.
    """

    iteration: int
    seconds: float
    rate: float = float("nan")
    values: dict[str, float] = field(default_factory=dict)


@dataclass
class TrainingLog:
    """The content of a log.

    Attributes:
        name: the name of the file, without its suffix.
        train: the outputs of the training net.
        test: the outputs of the test nets; those of a second one are called ``#1:accuracy``, and so on.
        losses: the losses of the lines "Iteration 10, loss = ...", which average_loss smooths, as ``loss``.
        weighted: the outputs with a loss weight.
    """

    name: str
    train: list[LogRow] = field(default_factory=list)
    test: list[LogRow] = field(default_factory=list)
    losses: list[LogRow] = field(default_factory=list)
    weighted: set[str] = field(default_factory=set)


def read_log(path: str) -> TrainingLog:
    """Return the log in the file ``path``.

    The learning rate of a row is that of its iteration, which the log shows after the outputs. (Caffe's parse_log.py
    gives each row the rate before.)

    Raises:
        FileError: the file cannot be read, or is no training log.
    """
    with file_errors(path):
        text = read_bytes(path).decode("utf-8", "replace")
    log = parse_log(text.splitlines(), Path(path).name)
    if not (log.train or log.test or log.losses):
        raise FileError(path, 'is no log of training: it has no lines "Iteration 10, loss = ..." or "Test net output"')
    return log


def parse_log(lines: Iterable[str], name: str = "log") -> TrainingLog:
    """Return the content of a log, as ``read_log`` does, from its ``lines``."""
    log = TrainingLog(name.removesuffix(".log").removesuffix(".txt"))
    clock = _Clock()
    iteration, net, index = -1, 0, -1
    rates: dict[int, float] = {}
    for line in lines:
        clock.read(line)
        if "Solving " in line:
            clock.start()
        if found := _ITERATION.search(line):
            iteration = int(found[1])
        if iteration < 0:
            continue
        if found := _LOSS.search(line):
            log.losses.append(LogRow(iteration, clock.seconds, values={"loss": float(found[1])}))
        if found := _LEARNING_RATE.search(line):
            rates[iteration] = float(found[1])
        if found := _TESTING.search(line):
            net = int(found[1])
        if found := _OUTPUT.search(line):
            rows = log.train if found[1] == "Train" else log.test
            label = f"#{net}:{found[3]}" if net and found[1] == "Test" else found[3]
            index, before = int(found[2]), index
            again = index <= before and (rows is log.train or net == 0)
            if not rows or rows[-1].iteration != iteration or (again and label in rows[-1].values):
                rows.append(LogRow(iteration, clock.seconds))
            values = rows[-1].values
            values[label if label not in values else f"{label}[{index}]"] = float(found[4])
            if found[5]:
                log.weighted.add(label)
    for rows in (log.train, log.test):
        _set_rates(rows, rates)
    for row in log.losses:
        row.rate = rates.get(row.iteration, row.rate)
    return log


def _set_rates(rows: Sequence[LogRow], rates: dict[int, float]) -> None:
    """Set the rate of each row; between two iterations with a rate it is the earlier one."""
    shown = sorted(rates)
    at = 0
    for row in sorted(rows, key=lambda row: row.iteration):
        while at + 1 < len(shown) and shown[at + 1] <= row.iteration:
            at += 1
        if shown:
            row.rate = rates[shown[at]]


class _Clock:
    """Reads the times of a log's lines, and returns the seconds since the run began."""

    def __init__(self) -> None:
        self._now: datetime.datetime | None = None
        self._start: datetime.datetime | None = None

    def read(self, line: str) -> None:
        found = _TIME.match(line)
        if not found:
            return
        year, month, day, hour, minute, second, fraction = found.groups()
        known = int(year) if year else self._now.year if self._now else _LEAP
        micro = int(fraction[:6].ljust(6, "0"))
        try:
            now = datetime.datetime(known, int(month), int(day), int(hour), int(minute), int(second), micro)
        except ValueError:
            return
        if self._now and not year and now < self._now - datetime.timedelta(days=180):
            now = now.replace(year=known + 4 if (now.month, now.day) == (2, 29) else known + 1)  # a new year has begun
        self._now = now

    def start(self) -> None:
        self._start = self._start or self._now

    @property
    def seconds(self) -> float:
        if self._now is None:
            return float("nan")
        self.start()
        assert self._start
        return (self._now - self._start).total_seconds()


def table(rows: Sequence[LogRow]) -> list[list[str]]:
    """Return the rows as cells, with the head of Caffe's parse_log.py: NumIters, Seconds, LearningRate, outputs."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    cells = [[ITERATION, SECONDS, RATE, *names]]
    for row in rows:
        values = [float(row.iteration), row.seconds, row.rate, *(row.values.get(name) for name in names)]
        cells.append(["" if value is None else str(value) for value in values])
    return cells


def write_tables(log: TrainingLog, path: str, folder: str, delimiter: str = ",") -> list[Path]:
    """Write ``log`` to the files ``<name of path>.train`` and ``.test`` in ``folder``, and return their paths.

    Raises:
        WriteError: a file could not be written.
    """
    written = []
    for end, rows in (("train", log.train), ("test", log.test)):
        content = io.StringIO()
        csv.writer(content, delimiter=delimiter, lineterminator="\n").writerows(table(rows))
        target = Path(folder) / f"{os.path.basename(path)}.{end}"
        write_text(target, content.getvalue())
        written.append(target)
    return written
