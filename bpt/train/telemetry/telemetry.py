"""Telemetry: listens to a Solver on every rank, and reports the run to the log and to files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Protocol

from bpt.config.plan.run_plan import RunPlan
from bpt.nn.layers.base import batch_of
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.device.memory_use import Memory
from bpt.system.events.bus import EventBus
from bpt.system.events.totals import Totals
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.milestones import Bound, Displayed, Milestone, Saved, Tested
from bpt.train.telemetry.rank_loads import Predicted, RankLoad, Scored, StragglerScores, load_of, straggler_lines
from bpt.train.telemetry.run_start import RunStart

LOG = logging.getLogger("bpt")


class Sink(Protocol):
    """A receiver of the first rank's metrics, such as MetricsFile."""

    def begin(self, plan: RunPlan, start: RunStart) -> None:
        """Note that training begins, or continues after a loss of ranks."""

    def displayed(self, shown: Displayed, samples: int, ranks: Sequence[Scored]) -> None:
        """Note that an iteration is displayed; an iteration trains ``samples`` samples."""

    def tested(self, tested: Tested) -> None:
        """Note that a test net has been tested."""

    def saved(self, saved: Saved) -> None:
        """Note that a snapshot has been written."""

    def close(self) -> None:
        """Note that the run is over."""


def close_all(sinks: Sequence[Sink]) -> None:
    """Close all sinks, also those behind one that fails."""
    with ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)


class ForecastWatch(Protocol):
    """Compares the ranks' loads with the forecast by which the plan was chosen (Drift)."""

    def predicted(self, shares: Sequence[int]) -> list[Predicted] | None:
        """Return the predicted load of each rank with these shares, or ``None`` without a forecast for them."""

    def lines(self, loads: Sequence[RankLoad], shares: Sequence[int]) -> Iterable[str]:
        """Return the log lines of an interval in which the ranks had ``loads``."""


class Telemetry(AbstractContextManager["Telemetry"]):
    """A listener of a Solver, one on each rank.

    Args:
        plan: the run.
        sinks: receivers of metrics, on the first rank only; after a loss this may be another rank.
        drift: the comparison with the forecast by which the plan was chosen, on the rank that has it.

    With several ranks, the log of each displayed iteration names the slowest rank and the cause.
    """

    def __init__(self, plan: RunPlan, sinks: Sequence[Sink] = (), drift: ForecastWatch | None = None) -> None:
        self._plan = plan
        self._sinks = sinks
        self._drift = drift
        self._scores = StragglerScores()
        self._totals = Totals()
        self._events: EventBus | None = None
        self._memory: Memory | None = None

    def __call__(self, milestone: Milestone) -> None:
        if isinstance(milestone, Bound):
            self._bind(milestone.runtime)
        elif isinstance(milestone, Displayed):
            self._show(milestone)
        elif self._is_first and isinstance(milestone, Tested):
            for sink in self._sinks:
                sink.tested(milestone)
        elif self._is_first and isinstance(milestone, Saved):
            for sink in self._sinks:
                sink.saved(milestone)

    def __exit__(self, *error: object) -> None:
        self._listen(None)
        close_all(self._sinks)

    def _bind(self, runtime: Runtime) -> None:
        self._world = runtime.world
        self._is_first = runtime.world.rank == 0
        batch = batch_of(runtime.net.graph)
        self._shares = partial(runtime.parallel.batches.shares, batch)
        self._samples = self._shares()[0].total * runtime.passes.count
        self._memory = Memory(runtime.nets.train.operator.device)
        self._listen(runtime.events if self._sinks or runtime.world.size > 1 else None)

        def begin() -> None:
            for sink in self._sinks:
                sink.begin(self._plan, RunStart.of(runtime))

        outcome_of_first(runtime.world, begin if self._is_first else None)

    def _listen(self, events: EventBus | None) -> None:
        if self._events is not None:
            self._events.remove(self._totals)
        self._events = events
        if events is not None:
            self._totals.take()
            events.add(self._totals, coarse=self._world.size == 1)

    def _show(self, shown: Displayed) -> None:
        totals = self._totals.take()
        if self._events is None or self._memory is None or not shown.iterations:
            return
        own = load_of(totals, shown.iterations, self._world.host, self._memory.peak)
        loads: list[RankLoad] = self._world.allgather(own)
        ranks = self._scores.of(self._world.world_ranks, loads)
        if self._world.size > 1:
            for line in straggler_lines(ranks):
                LOG.info("%s", line)
        if self._drift is not None:
            ranks = self._compare(self._drift, loads, ranks)
        if self._is_first:
            for sink in self._sinks:
                sink.displayed(shown, self._samples, ranks)

    def _compare(self, drift: ForecastWatch, loads: Sequence[RankLoad], ranks: Sequence[Scored]) -> list[Scored]:
        """Log the predicted and the measured loads; return the ranks with their predictions."""
        shares = [share.count for share in self._shares()]
        for line in drift.lines(loads, shares):
            LOG.info("%s", line)
        predicted = drift.predicted(shares)
        if predicted is None or len(predicted) != len(ranks):
            return list(ranks)
        return [replace(each, predicted=own) for each, own in zip(ranks, predicted, strict=True)]
