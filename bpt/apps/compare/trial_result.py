"""The outcome of one compared run, read from its ``--metrics`` file or from the outer layer's reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from bpt.apps.compare.trials import TrainingTrial
from bpt.base.errors import FileError
from bpt.train.outer.report.tables import read_csv
from bpt.train.telemetry.metrics_records import Record, read_records


@dataclass(frozen=True)
class TrialResult:
    """The outcome of a run; what is not known is NaN.

    Attributes:
        trial: what ran.
        ranks: the number of ranks.
        measure: the test output that ``scores`` are of: "accuracy", another output's name, or "loss".
        scores: (seconds since training began, score) of each test of the first test net, in order.
        seconds_an_iteration: the mean over the run.
        waiting: part of the ranks' time, 0 to 1, in exchanges and in waiting for other ranks.
        bytes_sent: bytes that a rank sent in an iteration, the mean over ranks.
        seconds: seconds from the beginning of training to its end.
        failure: why the run failed; empty: it did not.
        remark: what a reader of the numbers must know; empty: nothing.
    """

    trial: TrainingTrial
    ranks: int
    measure: str = "loss"
    scores: tuple[tuple[float, float], ...] = ()
    seconds_an_iteration: float = math.nan
    waiting: float = math.nan
    bytes_sent: float = math.nan
    seconds: float = math.nan
    failure: str = ""
    remark: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether a lower score is better."""
        return "accuracy" not in self.measure

    @property
    def final(self) -> float:
        """The score of the last test."""
        return self.scores[-1][1] if self.scores else math.nan

    @property
    def best(self) -> float:
        """The best score of all tests."""
        values = [score for _, score in self.scores if not math.isnan(score)]
        return (min if self.is_loss else max)(values, default=math.nan)

    def seconds_until(self, score: float) -> float:
        """Return the seconds until the first test that is as good as ``score``; NaN: none is."""
        for seconds, found in self.scores:
            if found <= score if self.is_loss else found >= score:
                return seconds
        return math.nan


def read_metrics(path: Path, trial: TrainingTrial, ranks: int) -> TrialResult:
    """Return the outcome of a synchronous run, which its ``--metrics`` file ``path`` holds.

    An iteration's seconds and the ranks' loads are means, weighted by the iterations between displays.

    Raises:
        FileError: the file is missing, or not what ``--metrics`` writes.
    """
    run = _SynchronousRun()
    read_records(str(path), run.take)
    if run.begin is None:
        raise FileError(path, "has no records: bpt train --metrics writes them")
    return TrialResult(
        trial,
        ranks,
        run.measure,
        tuple(run.scores),
        run.total / run.iterations if run.iterations else math.nan,
        run.waited / run.total if run.total and ranks > 1 else 0.0 if ranks == 1 else math.nan,
        0.0 if ranks == 1 else math.nan,
        run.end - run.begin,
    )


@dataclass
class _SynchronousRun:
    """Sums over the records of a run.

    Attributes:
        begin, end: the times of the first and the last record; ``begin`` is ``None`` without records.
        iterations: the number of iterations up to the last display.
        total, waited: seconds of these iterations, and how many of them the ranks exchanged or waited.
        measure, scores: as in TrialResult.
        shown: the last displayed iteration.
    """

    begin: float | None = None
    end: float = math.nan
    iterations: int = 0
    total: float = 0.0
    waited: float = 0.0
    measure: str = "loss"
    scores: list[tuple[float, float]] = field(default_factory=list)
    shown: int = 0

    def take(self, record: Record) -> None:
        """Add the next record."""
        if self.begin is None:
            self.begin, self.shown = record["time"], record["iteration"]
        self.end = record["time"]
        if record["kind"] == "test" and record["net"] == 0:
            if not self.scores:
                self.measure = _measure_of(record["outputs"])
            self.scores.append((self.end - self.begin, _score(record, self.measure)))
        elif record["kind"] == "train":
            count, self.shown = record["iteration"] - self.shown, record["iteration"]
            self.iterations += count
            self.total += count * record["seconds_an_iteration"]
            waits = [each["exchange"] + each["pipeline"] + each["layers"] for each in record["ranks"]]
            self.waited += count * fmean(waits)


def _measure_of(outputs: dict[str, Any]) -> str:
    numbers = [name for name, value in outputs.items() if not isinstance(value, list)]
    return next((name for name in numbers if "accuracy" in name), "loss")


def _score(record: Record, measure: str) -> float:
    value = record["loss"] if measure == "loss" else record["outputs"][measure]
    return math.nan if value is None else float(value)  # the net has no weighted loss, or it is not finite


def read_reports(folder: Path, trial: TrainingTrial, ranks: int) -> TrialResult:
    """Return the outcome of a run with SGWU, AGWU or ASGD, whose reports are in ``folder``.

    An iteration's seconds are the time of the run over its iterations; the nodes are its ranks without the server.

    Raises:
        FileError: a report is missing or damaged.
    """
    record = read_csv(folder)
    tests = [row for row in record.tests if row.net == 0]
    measure = "accuracy" if any(not math.isnan(row.accuracy) for row in tests) else "loss"
    scores = tuple((row.seconds, row.loss if measure == "loss" else row.accuracy) for row in tests)
    iterations = max((row.iteration for row in tests), default=0)
    sent = fmean([row.bytes_sent for row in record.nodes]) if record.nodes else math.nan
    return TrialResult(
        trial,
        ranks,
        measure,
        scores,
        record.execution_time / iterations if iterations else math.nan,
        record.waited_share(),
        sent / iterations if iterations else math.nan,
        record.execution_time,
    )
