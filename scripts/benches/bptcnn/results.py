"""What ``scripts/bench bptcnn`` makes of its runs: means over seeds, a table, the goals, and rows of CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bpt.base.log import columns
from bpt.train.outer.report import NodeRow, RunRecord
from scripts.benches.harness.outer_jobs import ALONE, RIVAL

BEST = "AGWU+IDPA"  # which should be
BALANCED, WAITS, POINTS = 0.95, 0.02, 0.5  # goals: balance index, part of the run, points of accuracy
POINT = 0.01


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        seed: of everything random.
        record: what was seen.
        accuracy: of its last weights, on the test images through all windows.
        others: cores that the rest of the machine used just before and after.
    """

    seed: int
    record: RunRecord
    accuracy: float
    others: float = 0.0

    @property
    def seconds(self) -> float:
        """Execution time."""
        return self.record.execution_time

    def waited(self, node: NodeRow) -> float:
        """The part of the run that a node waits for the server."""
        return node.waited_seconds / self.seconds

    @property
    def idle(self) -> float:
        """The part of the run that a node has nothing left to do, in the mean."""
        return fmean(node.idle_at_end_seconds for node in self.record.nodes) / self.seconds


Runs = Mapping[str, Sequence[Run]]
"""By the name of each way to train, its runs, which differ in their seed; ALONE is one of them."""


def mean_seconds(runs: Sequence[Run]) -> float:
    """Execution time."""
    return fmean(run.seconds for run in runs)


def seconds_to(runs: Sequence[Run], level: float) -> float:
    """Mean time until a test reached an accuracy; infinite: not all runs did."""
    times = [run.record.time_to(level) for run in runs]
    return fmean(math.inf if seconds is None else seconds for seconds in times)


def passes_to(record: RunRecord, level: float) -> float:
    """Passes over the data until a test reached an accuracy; infinite: none did."""
    return next((row.epoch for row in record.tests_of() if row.accuracy >= level), math.inf)


LEVELS = (0.65, 0.7, 0.75, 0.8)  # of the paper's Table 1
PASSES = ("way", "level", "passes", "seconds")


def level_rows(runs: Runs) -> Iterator[tuple[str, float, float, float]]:
    """Table 1: of each way and accuracy the mean passes and seconds until then, in the columns of PASSES.

    Both are infinite unless all runs reached it.
    """
    for name, each in runs.items():
        for level in LEVELS:
            yield name, level, fmean(passes_to(run.record, level) for run in each), seconds_to(each, level)


def level_table(runs: Runs) -> Iterator[str]:
    """A line for each way: passes until a test reached each of LEVELS."""
    rows = [("passes to", *(f"{level:g}" for level in LEVELS))]
    for name, each in runs.items():
        passes = [fmean(passes_to(run.record, level) for run in each) for level in LEVELS]
        rows.append((name, *("never" if math.isinf(number) else f"{number:.3g}" for number in passes)))
    yield from columns(rows, left=1)


def points_lost(runs: Sequence[Run], alone: Sequence[Run]) -> float:
    """Points of accuracy by which one process is better in the mean over the seeds."""
    return (fmean(run.accuracy for run in alone) - fmean(run.accuracy for run in runs)) / POINT


def most_waiting(runs: Sequence[Run]) -> tuple[str, float]:
    """The host whose worker waits most, and the part of the run that it does, in the mean over the seeds."""
    hosts = [node.host for node in runs[0].record.nodes]
    shares = [fmean(run.waited(run.record.nodes[number]) for run in runs) for number in range(len(hosts))]
    return max(zip(hosts, shares, strict=True), key=lambda pair: pair[1])


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN of a single value."""
    if len(values) < 2:
        return math.nan
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def table(runs: Runs, level: float) -> Iterator[str]:
    """A line for each way.

    Args:
        level: the accuracy that time is taken to.
    """
    rows = [
        ("way", "seconds", "least - most", f"x {BEST}", f"s to {level:g}", "waiting", "idle", "balance", "staleness",
         "accuracy %", "±", "points lost"),
    ]  # fmt: skip
    for name, each in runs.items():
        seconds = [run.seconds for run in each]
        accuracies = [run.accuracy / POINT for run in each]
        to = seconds_to(each, level)
        alone = name == ALONE
        staleness = [row.staleness for run in each for row in run.record.updates]
        rows.append((
            name,
            f"{fmean(seconds):.2f}",
            f"{min(seconds):.2f} - {max(seconds):.2f}",
            f"{fmean(seconds) / mean_seconds(runs[BEST]):.3f}" if BEST in runs else "",
            f"{to:.2f}" if to < math.inf else "not all",
            "" if alone else f"{fmean(run.record.waited_share() for run in each):.2%}",
            "" if alone else f"{fmean(run.idle for run in each):.2%}",
            "" if alone else f"{fmean(run.record.balance_index() for run in each):.4f}",
            f"{fmean(staleness):.2f}" if staleness else "",
            f"{fmean(accuracies):.2f}",
            f"{standard_error(accuracies):.2f}" if len(each) > 1 else "",
            f"{points_lost(each, runs[ALONE]):+.2f}" if ALONE in runs and not alone else "",
        ))  # fmt: skip
    yield from columns(rows, left=1)
    repeats = max(map(len, runs.values()))
    others = [run.others for each in runs.values() for run in each]
    yield f"means of {repeats} runs, the ±: standard error of a mean. waiting, idle (at the end): of the nodes' time"
    yield f"cores that others used before and after a run: {fmean(others):.2f} in the mean, {max(others):.2f} at most"


def verdicts(runs: Runs) -> Iterator[str]:
    """Which goals are reached."""
    if BEST not in runs:
        return
    best = runs[BEST]
    others = {name: mean_seconds(each) for name, each in runs.items() if name not in (BEST, str(RIVAL))}
    if others:
        next_ = min(others, key=lambda name: others[name])
        ratio = others[next_] / mean_seconds(best)
        yield _verdict(f"{BEST} is the fastest: {next_} takes {ratio:.3f} times as long", ratio > 1)
    balance = fmean(run.record.balance_index() for run in best)
    yield _verdict(f"balance index of {BEST}: {balance:.4f}, at least {BALANCED:g}", balance >= BALANCED)
    host, share = most_waiting(best)
    yield _verdict(
        f"worker on {host} waits most of {BEST}: {share:.2%} of the run, at most {WAITS:.0%}", share <= WAITS
    )
    if ALONE in runs:
        lost = points_lost(best, runs[ALONE])
        words = f"accuracy of {BEST}: {lost:+.2f} points lost against {ALONE}, at most {POINTS:g}"
        yield _verdict(words, lost <= POINTS)


def _verdict(words: str, reached: bool) -> str:
    return f"{words}: {'reached' if reached else 'missed'}"


RUNS = (
    "way", "seed", "seconds", "seconds_to_level", "waiting", "idle", "balance_index", "mean_staleness",
    "test_accuracy", "windows_accuracy", "others",
)  # fmt: skip


def run_rows(runs: Runs, level: float) -> Iterator[tuple[object, ...]]:
    """A row for each run, in the columns of RUNS; what there is not, is empty."""
    for name, each in runs.items():
        for run in each:
            record = run.record
            tests, to = record.tests_of(), record.time_to(level)
            staleness = [row.staleness for row in record.updates]
            yield (
                name, run.seed, run.seconds, "" if to is None else to, record.waited_share(), run.idle,
                record.balance_index(), fmean(staleness) if staleness else "",
                tests[-1].accuracy if tests else "", run.accuracy, run.others,
            )  # fmt: skip
