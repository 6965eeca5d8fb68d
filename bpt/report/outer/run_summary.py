"""What a run of the outer layer comes to: a few numbers, and log lines that tell them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from bpt.report.outer.record import RunRecord

SHOWN = 16  # nodes that get a log line each; of more, a line tells the range
SETTING = "setting"  # the unit of what is no quantity


@dataclass(frozen=True)
class Quantity:
    """A row of ``summary.csv``."""

    name: str
    value: str | int | float
    unit: str


def quantities(record: RunRecord) -> Iterator[Quantity]:
    """The run in numbers. What is not known is NaN."""
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
    """Log lines for the end of a run."""
    versions = max((row.version for row in record.updates), default=0)
    lost = f" ({record.lost} lost)" if record.lost else ""
    yield (
        f"Report: execution time {record.execution_time:.4g} s, {_many(len(record.workers), 'node')}{lost}, "
        f"{_many(len(record.updates), 'submission')}, {_many(versions, 'version')}"
    )
    yield from _node_lines(record)
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
    """Of those that are known; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
