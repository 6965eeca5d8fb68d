"""What a record adds up to, worked by hand."""

from __future__ import annotations

import math

import pytest

from bpt.train.outer.report import AllocationRow, RunRecord
from tests.train.outer.report.runs import KIB, scored, small_run, update


def test_durations_and_waiting() -> None:
    """Passes of (2, 4), (3, 4) and (3, 3) s: node 0 would wait 2 + 1 + 0; 19 s of 2 · (4 + 4 + 3) are no waiting."""
    record = small_run()
    assert record.workers == (0, 1)
    assert record.durations() == [[2.0, 4.0], [3.0, 4.0], [3.0, 3.0]]
    assert record.waiting_time() == 3.0
    assert record.balance_index() == pytest.approx(19 / 22)
    assert record.balance_indices() == pytest.approx([3 / 4, 3.5 / 4, 1.0])


def test_shares_of_the_execution_time() -> None:
    record = small_run()
    assert record.waited_share() == pytest.approx(1.2 / 24)
    assert record.computed_share() == pytest.approx(19 / 24)


def test_bytes() -> None:
    """Eq. 11: 1 KiB there and back, of 2 nodes, 3 times."""
    record = small_run()
    assert record.bytes_counted() == record.bytes_expected() == 12 * KIB
    record.iterations = 0
    assert record.exchanges == 3
    record.iterations = 5
    assert record.bytes_expected() == 20 * KIB


def test_several_submissions_a_pass() -> None:
    """ASGD: node 0 submits after a half, a whole, one and a half passes; node 1 twice within its first."""
    record = RunRecord(updates=[
        update(1, 1.0, 0, 0, 0.5, 1.0), update(2, 2.0, 1, 0, 0.25, 7.0), update(3, 3.0, 0, 0, 1.0, 2.0),
        update(4, 4.0, 0, 0, 1.5, 4.0), update(5, 9.0, 1, 0, 1.0, 8.0),
    ])  # fmt: skip
    assert record.durations() == [[3.0, 15.0], [4.0, None]]


def test_several_passes_a_submission() -> None:
    """Two passes in 6 s, then one and a half in 6 s: 4 s a pass."""
    record = RunRecord(updates=[update(1, 6.0, 3, 0, 2.0, 6.0), update(2, 12.0, 3, 0, 3.5, 6.0)])
    assert record.workers == (3,)
    assert record.durations() == [[3.0], [3.0], [4.0], [2.0]]


def test_who_comes_late_has_missed_passes() -> None:
    """Node 1 gets nothing of the first batch."""
    record = RunRecord(
        updates=[update(1, 1.0, 0, 0, 1.0, 1.0), update(2, 2.0, 0, 1, 2.0, 1.0), update(3, 3.0, 1, 1, 2.0, 2.0)],
        allocation=[AllocationRow(1, 0.0, 0, 9, 9), AllocationRow(1, 0.0, 1, 0, 0), AllocationRow(2, 1.0, 1, 9, 9)],
    )
    assert record.durations() == [[1.0, None], [1.0, 2.0]]


def test_nothing_seen() -> None:
    record = RunRecord()
    assert record.execution_time == record.waiting_time() == record.waited_share() == 0
    assert record.balance_index() == 1
    assert record.bytes_counted() == record.bytes_expected() == 0
    assert record.durations() == record.balance_indices() == []
    assert math.isnan(record.best_accuracy())


def test_execution_time() -> None:
    record = small_run()
    record.tests.append(scored(13.5, 3.0, 0.5))
    assert record.execution_time == 12
    record.seconds = math.nan
    assert record.execution_time == 13.5


def test_time_to_accuracy() -> None:
    record = small_run()
    assert record.time_to(0.1) == record.time_to(0.5) == 4.5
    assert record.time_to(0.8) == 8.5
    assert record.time_to(0.9) is None
    assert record.best_accuracy() == 0.875
    assert (record.best_accuracy(net=1), record.time_to(0.5, net=1)) == (0.1, None)
    record.tests.append(scored(13.0, 4.0, math.nan))
    assert record.best_accuracy() == 0.875
