"""What the main server of an outer layer reports to the receivers of metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.outer import train
from bpt.train.telemetry.metrics_file import MetricsFile
from bpt.train.telemetry.outer_telemetry import OuterTelemetry
from tests.support.doubles.thread_ranks import run_ranks

pytestmark = pytest.mark.usefixtures("folder")


def test_a_run_without_receivers_is_displayed() -> None:
    plan = read_plan("solver.prototxt", ["display: 3 parallel_param { exchange: ASGD sync_batch_norm: false }"])

    def run(comm: Communicator) -> None:
        with OuterTelemetry(plan, comm, []) as telemetry:
            train(plan, comm, CPU, listeners=[telemetry])

    run_ranks(2, run)


def test_a_run_of_two_workers() -> None:
    plan = read_plan("solver.prototxt", ["display: 3 parallel_param { exchange: ASGD sync_batch_norm: false }"])

    def run(comm: Communicator) -> None:
        with OuterTelemetry(plan, comm, [MetricsFile("run.jsonl")]) as telemetry:
            train(plan, comm, CPU, listeners=[telemetry])

    run_ranks(3, run)
    records = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
    kinds = [record["kind"] for record in records]
    assert (kinds[0], kinds[-1]) == ("start", "end") and {"train", "snapshot"} <= set(kinds)
    start, shown = records[0], next(record for record in records if record["kind"] == "train")
    assert [start[key] for key in ("ranks", "replicas", "iteration", "max_iter")] == [3, 2, 0, plan.max_iter]
    assert [each["rank"] for each in shown["ranks"]] == [1, 2]
    assert shown["samples_a_second"] > 0
