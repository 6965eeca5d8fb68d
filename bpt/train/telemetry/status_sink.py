"""StatusSink: keeps a TrainingStatus by what a run reports: its milestones, its iterations, and its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from bpt.config.plan.run_plan import RunPlan
from bpt.train.rules.test_output_rules import higher_is_better
from bpt.train.solver.milestones import Displayed, Saved, Tested
from bpt.train.state.best import after_test
from bpt.train.telemetry.rank_loads import Scored
from bpt.train.telemetry.run_start import RunStart
from bpt.train.telemetry.training_status import TrainingStatus, slowest_line


class StatusSink(logging.Handler):
    """A Sink of Telemetry, an observer of the iterations, and a handler of the log; it only writes to ``status``.

    A terminal that shows ``status`` reads it in another thread, between any two assignments.
    """

    def __init__(self, status: TrainingStatus) -> None:
        super().__init__()
        self.status = status
        self._plan = RunPlan()
        self._judged: tuple[int, str] | None = None  # a test net, and its output
        self._higher = True

    def emit(self, record: logging.LogRecord) -> None:
        """Note the newest line of the log."""
        lines = record.getMessage().splitlines()
        self.status.message = lines[0] if lines else ""

    # What a solver counts

    def count_from(self, done: int, total: int) -> None:
        """Note that training begins, or continues."""
        self.status.first = self.status.iteration = done
        self.status.max_iter = total
        self.status.paced = None

    def advance_to(self, done: int, loss: float | None) -> None:
        """Note that an iteration is done."""
        status = self.status
        status.iteration = done
        if status.paced is None:
            status.paced = done, time.monotonic()
        if loss is not None and status.learning_rate is None:  # nothing is displayed
            status.loss = loss

    # What a Sink gets

    def begin(self, plan: RunPlan, start: RunStart) -> None:
        """Note the net, and the test output to show: the one that the run is judged by, or else the first score."""
        outputs = [(index, edge) for index, graph in enumerate(start.tests) for edge in graph.outputs]
        named = [(index, edge) for index, edge in outputs if edge.blob == plan.judged_by]
        scores = [(index, edge) for index, edge in outputs if not edge.loss_weight]
        self._plan = plan
        if chosen := (named or scores or outputs)[:1]:
            index, edge = chosen[0]
            self._judged = index, edge.blob
            self._higher = higher_is_better(plan, start.tests) if named else not edge.loss_weight
            self.status.judged = edge.blob
        self.status.net = start.net

    def displayed(self, shown: Displayed, samples: int, ranks: Sequence[Scored]) -> None:
        """Note a displayed iteration."""
        status = self.status
        status.loss, status.learning_rate = shown.loss, shown.learning_rate
        status.samples_a_second = samples * shown.iterations / shown.seconds
        status.slowest = slowest_line(list(ranks))

    def tested(self, tested: Tested) -> None:
        """Note a score."""
        if self._judged is None or self._judged[0] != tested.net:
            return
        value = tested.scores.outputs.get(self._judged[1])
        if value is not None and value.numel() == 1:
            status, score = self.status, float(value.item())
            status.best = after_test(status.best, score, tested.iteration, self._higher)
            status.score = score

    def saved(self, saved: Saved) -> None:
        """Note a snapshot."""
        if os.path.basename(saved.path).startswith(f"{os.path.basename(self._plan.snapshot_prefix)}_best."):
            self.status.best_snapshot = saved.path
        else:
            self.status.snapshot = saved.path

    def close(self) -> None:
        """Leave what is known; the status outlives the run."""
