"""Whole runs in which samples move from a worker that becomes slower; its seconds are made up."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from bpt.parallel.outer.outer_instructions import Migrated, SendOrder
from bpt.train.outer.replay_log import read_log
from bpt.train.outer.report import RunRecord, read_csv
from tests.support.paced_worker import PacedWorker
from tests.train.outer.outer_runs import assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")

MIGRATE = "balance: IDPA balance_param { num_batches: 2 migrate: true }"


@pytest.fixture(autouse=True)
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", PacedWorker)


def end(record: RunRecord) -> float:
    """Seconds of all passes under SGWU: in each, all wait for the slowest."""
    return sum(max(time for time in times if time is not None) for times in record.durations())


def test_sgwu_ends_sooner(caplog: pytest.LogCaptureFixture) -> None:
    """22 samples, 11 for each; worker 1 then takes four times as long: of speeds 4 and 1, 17.6 and 4.4 samples."""
    caplog.set_level(logging.INFO)
    outer(3, "exchange: SGWU balance: IDPA balance_param { num_batches: 2 }", "max_iter: 20")
    without = read_csv("small_run")
    assert without.migration == [] and not Path("small_run/migration.csv").exists()
    outer(3, f"exchange: SGWU {MIGRATE}", "max_iter: 20")
    record = read_csv("small_run")
    (row,) = record.migration
    assert (row.giver, row.taker, row.samples) == (1, 0, 7)
    times = (row.giver_before, row.giver_now, row.taker_before, row.taker_now)
    assert times == pytest.approx((0.01, 0.04, 0.01, 0.01))
    assert (row.longest_before, row.longest_after) == pytest.approx((11 * 0.04, 18 * 0.01))
    assert [node.samples_allocated for node in record.nodes] == [18, 4]
    assert end(record) < 0.7 * end(without)
    assert sum(row.samples for row in record.updates) >= 10 * 22  # 20 iterations of 12 are 10.9 passes
    (line,) = [text for text in caplog.messages if text.startswith("Migration:")]
    assert (
        line.startswith("Migration: worker 1 (rank 2, host ") and " gives 7 samples to worker 0 (rank 1, host " in line
    )
    assert line.endswith(
        "a sample takes 0.04 s (0.01 s when the samples were divided) there and 0.01 s (0.01 s when the samples were "
        "divided) here; the longest pass is expected to take 0.18 s, not 0.44 s"
    )
    assert "Report: 7 samples migrated between workers, in 1 move" in caplog.messages


@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_a_replay_moves_the_same_samples(exchange: str) -> None:
    parallel = f"exchange: {exchange} {MIGRATE}"
    outer(3, parallel, "max_iter: 30")
    expected, log = weights(30), read_log("small_run/replay.jsonl").instructions
    Path("small_run").rename("first_run")
    outer(3, parallel, "max_iter: 30 snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(30, "again"), expected)
    moves = [each for each in log if isinstance(each, Migrated)]
    assert moves
    given = sum(stop - start for each in log if isinstance(each, SendOrder) for start, stop in each.order.gives)
    assert given == sum(move.samples for move in moves)
    record, again = read_csv("first_run"), read_csv("again_run")
    assert [(row.giver, row.taker, row.samples) for row in again.migration] == [
        (row.giver, row.taker, row.samples) for row in record.migration
    ]
    assert [row.samples_allocated for row in again.nodes] == [row.samples_allocated for row in record.nodes]


def test_all_ranks_of_a_worker_learn_of_it() -> None:
    parallel = f"exchange: SGWU num_shards: 2 {MIGRATE}"
    outer(5, parallel, "max_iter: 20")
    record = read_csv("small_run")
    assert [node.samples_allocated for node in record.nodes] == [18, 4]
    assert not any(math.isnan(row.loss) for row in record.updates)
