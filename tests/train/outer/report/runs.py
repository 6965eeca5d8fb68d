"""A run that is small enough to be worked out by hand: two nodes, three passes, 1 KiB of weights."""

from __future__ import annotations

import math

from bpt.train.outer.report import AllocationRow, NodeRow, RunRecord, UpdateRow
from bpt.train.outer.report import record as rows

KIB = 1024


def update(version: int, at: float, worker: int, base: int, passes: float, seconds: float, moved: int = 0,
           factor: float = 0.5) -> UpdateRow:  # fmt: skip
    """Of AGWU, with what does not matter filled in."""
    return UpdateRow(
        version, at, worker, f"host{worker}", base, version - 1 - base, 2 * factor, 0.5, factor, passes, 10, seconds,
        0.25, 1.5, moved,
    )  # fmt: skip


def scored(seconds: float, epoch: float, accuracy: float, auc: float = math.nan, net: int = 0) -> rows.TestRow:
    return rows.TestRow(seconds, int(10 * epoch), epoch, int(2 * epoch), net, 1.0, accuracy, auc)


def small_run(title: str = "a run") -> RunRecord:
    """AGWU: node 0 takes 2, 3 and 3 s for its passes, node 1 takes 4, 4 and 3."""
    record = RunRecord(title, weights=KIB, iterations=3, seconds=12.0, facts={"exchange": "AGWU", "balance": "IDPA"})
    record.updates += [
        update(1, 2.0, 0, 0, 1.0, 2.0, 2 * KIB, 0.25),
        update(2, 4.25, 1, 0, 1.0, 4.0, 2 * KIB, 0.75),
        update(3, 5.5, 0, 1, 2.0, 3.0, 4 * KIB),
        update(4, 8.5, 1, 2, 2.0, 4.0, 4 * KIB),
        update(5, 8.75, 0, 3, 3.0, 3.0, 6 * KIB),
        update(6, 12.0, 1, 4, 3.0, 3.0, 6 * KIB),
    ]
    record.nodes += [
        NodeRow(0, "host0", 30, 3.0, 8.0, 0.6, 3.25, 3, 3 * KIB, 3 * KIB),
        NodeRow(1, "host1", 20, 3.0, 11.0, 0.6, 0.0, 3, 3 * KIB, 3 * KIB),
    ]
    record.tests += [
        scored(4.5, 1.0, 0.5, 0.75),
        scored(4.5, 1.0, 0.1, net=1),
        scored(8.5, 2.0, 0.875, 0.9375),
        scored(12.0, 3.0, 0.8125, 0.96875),
    ]
    record.allocation += [AllocationRow(1, 0.0, 0, 30, 30), AllocationRow(1, 0.0, 1, 20, 20)]
    return record
