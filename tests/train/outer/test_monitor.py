"""What the main server notes: rows for the reports, and lines in the log."""

from __future__ import annotations

import logging
import math
from fractions import Fraction

import pytest

from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.outer_instructions import AverageSubmitted, Order, Settled, SubmissionReport
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.train.outer.monitor import Monitor
from bpt.train.outer.report import AllocationRow, NodeRow, RunRecord, UpdateRow
from bpt.train.solver.milestones import Listener, Milestone, WorkersDisplayed, WorkerTimes

NAMES, HOSTS = ("worker 0 (rank 1, host a)", "worker 1 (rank 2, host b)"), ("a", "b")


class Clock:
    """Tells what time it is."""

    seconds = 0.0


class Timed(Monitor):
    """A monitor that goes by ``clock``."""

    clock: Clock

    @property
    def seconds(self) -> float:
        return self.clock.seconds


def monitor(
    silent: bool = False, notify: Listener = lambda milestone: None, **solver: object
) -> tuple[Monitor, Clock, RunRecord]:
    record = RunRecord()
    plan = RunPlan(optim=OptimSpec(base_lr=0.5, lr_policy="fixed"), **solver)  # type: ignore[arg-type]
    made = Timed(plan, NAMES, HOSTS, (1, 2), record, 0, silent, notify)
    clock = made.clock = Clock()
    return made, clock, record


def report(
    worker: int, passes: int = 1, loss: float = 2.0, seconds: float = 1.5, waited: float = 0.25
) -> SubmissionReport:
    return SubmissionReport(worker, Fraction(passes), 4, 20, seconds, waited, 0.8, loss)


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="bpt")
    return caplog


def test_an_update(lines: pytest.LogCaptureFixture) -> None:
    """AGWU: staleness and the factor that was applied, in the log and on record."""
    made, clock, record = monitor()
    made.submitted(report(1, 3))
    clock.seconds = 9.0
    made.merged(AgwuUpdate(1, base=4, newest=7, gamma=0.5, accuracy=0.8), moved=1000)
    assert record.updates == [
        UpdateRow(8, 9.0, 1, "b", 4, 3, 0.5, 0.8, 0.4, 3.0, 20, 1.5, 0.25, 2.0, 1000)
    ]  # fmt: skip
    assert lines.messages == [
        "Version 8: worker 1 (rank 2, host b), from version 4 (staleness 3), gamma 0.5 * accuracy 0.8 = factor 0.4; "
        "pass 3: 20 samples in 1.5 s, waited 0.25 s, loss = 2"
    ]


def test_a_displayed_iteration_has_what_the_workers_did_last() -> None:
    seen: list[Milestone] = []
    made, _, _ = monitor(notify=seen.append, display=5)
    for iteration, workers in ((4, [0]), (6, [0, 1]), (11, [1])):
        for worker in workers:
            made.submitted(report(worker, loss=worker + 1.0))
        made.display(iteration)
    shown = [each for each in seen if isinstance(each, WorkersDisplayed)]
    assert [(each.iteration, each.iterations, each.loss, each.learning_rate) for each in shown] == [
        (6, 6, 1.5, 0.5), (11, 5, 1.5, 0.5),
    ]  # fmt: skip
    assert [each.workers for each in shown] == [
        [WorkerTimes(1, "a", 3.0, 0.5, 40), WorkerTimes(2, "b", 1.5, 0.25, 20)],
        [WorkerTimes(1, "a", 3.0, 0.5, 40), WorkerTimes(2, "b", 1.5, 0.25, 20)],  # the first has submitted nothing
    ]


def test_asgd_is_silent(lines: pytest.LogCaptureFixture) -> None:
    made, _, record = monitor(silent=True)
    made.submitted(report(0))
    made.merged(AgwuUpdate(0, 0, 0, 1.0, 1.0), moved=0)
    assert len(record.updates) == 1 and lines.messages == []


def test_a_mean(lines: pytest.LogCaptureFixture) -> None:
    """SGWU: a row for each worker, of one version."""
    made, clock, record = monitor()
    for worker in (1, 0):
        made.submitted(report(worker, loss=worker + 1.0))
    clock.seconds = 3.0
    made.averaged(AverageSubmitted((0, 1), (0.25, 0.75), 6), moved=[100, 200])
    assert [(row.version, row.worker, row.base, row.staleness, row.factor, row.moved) for row in record.updates] == [
        (6, 0, 5, 0, 0.25, 100),
        (6, 1, 5, 0, 0.75, 200),
    ]
    assert all(math.isnan(row.gamma) for row in record.updates)
    assert lines.messages[0] == (
        "Version 6: worker 0 (rank 1, host a), accuracy 0.8, factor 0.25; pass 1: 20 samples in 1.5 s, waited 0.25 s, "
        "loss = 1"
    )


def test_batches(lines: pytest.LogCaptureFixture) -> None:
    """Orders without samples are no rows."""
    made, clock, record = monitor()
    made.sent(Order(1, 0, runs=((0, 5), (7, 8)), batch=1))
    clock.seconds = 2.0
    made.sent(Order(0, 1, batch=1))
    made.sent(Order(1, 1, runs=((8, 10),), batch=2))
    assert record.allocation == [AllocationRow(1, 0.0, 1, 6, 6), AllocationRow(2, 2.0, 1, 2, 8)]
    assert lines.messages == [
        "Batch 1: worker 1 (rank 2, host b) gets 6 samples, has 6",
        "Batch 2: worker 1 (rank 2, host b) gets 2 samples, has 8",
    ]


def test_a_worker_that_is_gone(lines: pytest.LogCaptureFixture) -> None:
    """The log names it, and says that its samples go to others, if there are others."""
    made, _, _ = monitor()
    made.sent(Order(1, 0, runs=((0, 5),), batch=1))
    lines.clear()
    made.record_lost(1, taken_over=True)
    lost, taken_over = lines.records
    assert lost.levelname == taken_over.levelname == "WARNING"
    assert "worker 1 (rank 2, host b) is gone" in lost.getMessage()
    assert "its 5 samples go to the other workers" in taken_over.getMessage()
    lines.clear()
    made.record_lost(1, taken_over=False)
    assert "Its 5 samples are no longer trained" in lines.records[-1].getMessage()


def test_a_layout(lines: pytest.LogCaptureFixture) -> None:
    made, _, _ = monitor()
    made.settled(Settled(0, pb.SolverParameter.CONTIGUOUS, pb.InnerParameter.LIBRARY))
    assert lines.messages == ["Engine: worker 0 (rank 1, host a) computes in CONTIGUOUS, by LIBRARY"]


def test_the_loss_is_the_mean_of_the_newest_of_each_worker() -> None:
    made, _, _ = monitor()
    assert math.isnan(made.loss)
    made.record_loss(0, 5.0)
    assert made.loss == 5.0
    made.submitted(report(1, loss=2.0))
    assert made.loss == 3.5
    made.submitted(report(0, loss=3.0))
    made.submitted(report(1, loss=math.nan))  # it has trained nothing
    assert made.loss == 2.5


def test_display(lines: pytest.LogCaptureFixture) -> None:
    """Once for each time that another ``display`` iterations have passed; not before there is a loss."""
    made, _, _ = monitor(display=10)
    made.display(12)
    assert lines.messages == []
    made.record_loss(0, 2.0)
    for iteration in (5, 9, 12, 19, 35, 39, 40):
        made.display(iteration)
    shown = [message for message in lines.messages if "loss" in message]
    assert [message.split()[1] for message in shown] == ["12", "35", "40"]
    assert shown[0].endswith("loss = 2")
    assert "Iteration 35, lr = 0.5" in lines.messages


def test_no_display(lines: pytest.LogCaptureFixture) -> None:
    made, _, _ = monitor(display=0)
    made.record_loss(0, 2.0)
    made.display(100)
    assert lines.messages == []


def test_the_nodes_in_the_end() -> None:
    """Sums of what each has computed and waited, and the time since its last submission. A worker that has done
    nothing has waited for nothing."""
    made, clock, record = monitor()
    made.sent(Order(0, 0, runs=((0, 5),), batch=1))
    clock.seconds = 4.0
    made.submitted(report(0, 1, seconds=1.5, waited=0.25))
    clock.seconds = 6.0
    made.submitted(report(0, 2, seconds=2.0, waited=0.5))
    clock.seconds = 10.0
    made.finish([300, 0], [400, 100])
    assert record.seconds == 10.0
    assert record.nodes == [
        NodeRow(0, "a", 5, 2.0, 3.5, 0.75, 4.0, 2, 300, 400),
        NodeRow(1, "b", 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 100),
    ]


def test_a_lost_worker_is_not_idle() -> None:
    made, clock, record = monitor()
    clock.seconds = 4.0
    made.submitted(report(1))
    clock.seconds = 6.0
    made.record_lost(1, taken_over=True)
    clock.seconds = 10.0
    made.finish([0, 0], [0, 0])
    assert [(row.idle_at_end_seconds, row.lost) for row in record.nodes[1:]] == [(0.0, 6.0)]
    assert math.isnan(record.nodes[0].lost)
