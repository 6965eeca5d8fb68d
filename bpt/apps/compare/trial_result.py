"""The outcome of one compared run, read from its ``--metrics`` file or from the outer layer's reports."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bpt.apps.compare.trials import TrainingTrial
from bpt.base.errors import FileError
from bpt.train.outer.report.tables import read_csv


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
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        start = lines[0]["time"]
        tests = [line for line in lines if line["kind"] == "test" and line["net"] == 0]
        measure = _measure_of(tests)
        scores = tuple((line["time"] - start, _score(line, measure)) for line in tests)
        before, iterations, total, waited = lines[0]["iteration"], 0, 0.0, 0.0
        for line in lines:
            if line["kind"] != "train":
                continue
            count, before = line["iteration"] - before, line["iteration"]
            iterations += count
            total += count * line["seconds_an_iteration"]
            waited += count * fmean(each["exchange"] + each["pipeline"] + each["layers"] for each in line["ranks"])
        return TrialResult(
            trial,
            ranks,
            measure,
            scores,
            total / iterations if iterations else math.nan,
            waited / total if total and ranks > 1 else 0.0 if ranks == 1 else math.nan,
            0.0 if ranks == 1 else math.nan,
            lines[-1]["time"] - start,
        )
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise FileError(path, f"not a file that --metrics writes ({error!r})") from None


def _measure_of(tests: list[dict[str, Any]]) -> str:
    numbers = [name for name, value in (tests[0]["outputs"] if tests else {}).items() if not isinstance(value, list)]
    return next((name for name in numbers if "accuracy" in name), "loss")


def _score(line: dict[str, Any], measure: str) -> float:
    value = line["loss"] if measure == "loss" else line["outputs"][measure]
    if value is None and measure == "loss":  # the net has no weighted loss, or the loss is not finite
        return math.nan
    return math.nan if value is None else float(value)


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
