"""OuterTelemetry: reports a run of SGWU, AGWU or ASGD, by the milestones of its main server, to files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from bpt.config.plan.run_plan import RunPlan
from bpt.nn.layers.base import batch_of
from bpt.system.comm.base import Communicator
from bpt.train.outer.roles import Roles
from bpt.train.solver.milestones import Bound, Displayed, Milestone, Saved, Tested, WorkersDisplayed
from bpt.train.telemetry.rank_loads import RankLoad, StragglerScores
from bpt.train.telemetry.run_start import RunStart
from bpt.train.telemetry.telemetry import Sink, close_all


class OuterTelemetry(AbstractContextManager["OuterTelemetry"]):
    """A listener of the main server.

    The load of a worker is its time for a batch in what it has submitted since the last displayed iteration or, if that
    is nothing, before: it computes, or waits for the server ("exchange").

    Args:
        plan: the run.
        world: all ranks of the job.
        sinks: receivers of metrics.
    """

    def __init__(self, plan: RunPlan, world: Communicator, sinks: Sequence[Sink]) -> None:
        self._plan = plan
        self._world = world
        self._sinks = sinks
        self._scores = StragglerScores()
        self._samples = 0

    def __call__(self, milestone: Milestone) -> None:
        if isinstance(milestone, Bound):
            self._begin(milestone)
        elif isinstance(milestone, WorkersDisplayed) and milestone.iterations:
            self._show(milestone)
        for sink in self._sinks:
            if isinstance(milestone, Tested):
                sink.tested(milestone)
            elif isinstance(milestone, Saved):
                sink.saved(milestone)

    def __exit__(self, *error: object) -> None:
        close_all(self._sinks)

    def _begin(self, bound: Bound) -> None:
        param = self._plan.parallel_param
        self._samples = batch_of(bound.runtime.net.graph) * self._plan.optim.iter_size
        start = replace(
            RunStart.of(bound.runtime), ranks=self._world.size, replicas=len(Roles.of(param, self._world).workers),
            stages=param.num_stages, shards=param.num_shards,
        )  # fmt: skip
        for sink in self._sinks:
            sink.begin(self._plan, start)

    def _show(self, milestone: WorkersDisplayed) -> None:
        loads = []
        for worker in milestone.workers:
            batches = max(worker.samples, 1) / self._samples
            loads.append(RankLoad(worker.host, worker.computing / batches, 0.0, worker.waiting / batches, 0.0, 0))
        scored = self._scores.of([worker.rank for worker in milestone.workers], loads) if loads else []
        shown = Displayed(
            milestone.iteration, milestone.loss, {}, milestone.learning_rate, milestone.iterations, milestone.seconds
        )
        for sink in self._sinks:
            sink.displayed(shown, self._samples, scored)
