"""What a terminal knows of whole runs, on ranks that are threads."""

from __future__ import annotations

import pytest

from bpt.base.progress import ProgressBar, showing_progress
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from bpt.train.telemetry.status_sink import StatusSink
from bpt.train.telemetry.telemetry import Telemetry
from bpt.train.telemetry.training_status import TrainingStatus
from tests.support.doubles.thread_ranks import run_ranks

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run(ranks: int) -> None:
    sink = StatusSink(TrainingStatus(ranks))

    def run(comm: Communicator) -> None:
        plan = read_plan("solver.prototxt")
        with (
            Telemetry(plan, [] if comm.rank else [sink]) as telemetry,
            Solver(plan, world=comm, listeners=[telemetry]) as solver,
        ):
            solver.solve()

    with showing_progress(sink):
        run_ranks(ranks, run)
    status = sink.status
    assert (status.net, status.first, status.iteration, status.max_iter) == ("one", 0, 4, 4)
    assert status.paced is not None and status.paced[0] == 1
    assert (status.loss, status.learning_rate) == (0.5 * 0.25**2, 0.5)  # displayed at iteration 2
    assert status.samples_a_second is not None and status.samples_a_second > 0
    assert (status.judged, status.score, status.snapshot) == ("loss", 0.5 * 0.25**4, "one_iter_4.solverstate")
    assert status.best is not None and status.best[:2] == (0.5 * 0.25**4, 4)
    assert status.slowest.startswith("slowest rank ") == (ranks > 1)


def test_a_run_that_displays_nothing_shows_the_loss_of_its_iterations() -> None:
    sink = StatusSink(TrainingStatus())
    plan = read_plan("solver.prototxt", ["display: 0 snapshot_best: 'loss' test_interval: 2"])
    with (
        showing_progress(sink),
        Telemetry(plan, [sink]) as telemetry,
        Solver(plan, listeners=[telemetry]) as solver,
    ):
        solver.solve()
    assert (sink.status.loss, sink.status.learning_rate) == (0.5 * 0.25**3, None)
    assert (sink.status.snapshot, sink.status.best_snapshot) == ("one_iter_4.solverstate", "one_best.solverstate")


def test_a_run_that_continues_measures_its_own_pace() -> None:
    sink = StatusSink(TrainingStatus())
    with showing_progress(sink), ProgressBar(10, 6) as progress:
        assert (sink.status.first, sink.status.iteration, sink.status.seconds_an_iteration(1e9)) == (6, 6, None)
        progress.to(7)
        progress.to(9)
    assert sink.status.paced is not None
    assert sink.status.seconds_an_iteration(sink.status.paced[1] + 5) == 2.5
