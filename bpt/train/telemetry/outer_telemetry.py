"""OuterTelemetry: reports a run of SGWU, AGWU or ASGD, by the milestones of its main server, to files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from bpt.config.plan.run_plan import RunPlan
from bpt.nn.layers.base import batch_of
from bpt.train.solver.milestones import Bound, Displayed, Milestone, Saved, Tested, WorkersDisplayed
from bpt.train.telemetry.rank_loads import RankLoad, StragglerScores
from bpt.train.telemetry.run_start import RunStart
from bpt.train.telemetry.telemetry import Sink


class OuterTelemetry(AbstractContextManager["OuterTelemetry"]):
    """A listener of the main server.

    The load of a worker is its time between two displayed iterations, divided by all iterations between them: it
    computes, or waits for the server ("exchange").

    Args:
        plan: the run.
        ranks: the number of ranks of the job.
        workers: the number of workers.
        sinks: receivers of metrics.
    """

    def __init__(self, plan: RunPlan, ranks: int, workers: int, sinks: Sequence[Sink]) -> None:
        self._plan = plan
        self._ranks = ranks
        self._workers = workers
        self._sinks = sinks
        self._scores = StragglerScores()
        self._samples = 0

    def __call__(self, milestone: Milestone) -> None:
        for sink in self._sinks:
            if isinstance(milestone, Bound):
                self._begin(sink, milestone)
            elif isinstance(milestone, Tested):
                sink.tested(milestone)
            elif isinstance(milestone, Saved):
                sink.saved(milestone)
        if isinstance(milestone, WorkersDisplayed) and milestone.iterations:
            self._show(milestone)

    def __exit__(self, *error: object) -> None:
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)

    def _begin(self, sink: Sink, bound: Bound) -> None:
        param = self._plan.parallel_param
        self._samples = batch_of(bound.runtime.net.graph) * self._plan.optim.iter_size
        start = replace(RunStart.of(bound.runtime), ranks=self._ranks, replicas=self._workers)
        sink.begin(self._plan, replace(start, stages=param.num_stages, shards=param.num_shards))

    def _show(self, milestone: WorkersDisplayed) -> None:
        loads = [
            RankLoad(
                worker.host, worker.computing / milestone.iterations, 0.0, worker.waiting / milestone.iterations, 0.0, 0
            )
            for worker in milestone.workers
        ]
        scored = self._scores.of([worker.rank for worker in milestone.workers], loads)
        shown = Displayed(
            milestone.iteration, milestone.loss, {}, milestone.learning_rate, milestone.iterations, milestone.seconds
        )
        for sink in self._sinks:
            sink.displayed(shown, self._samples, scored)
