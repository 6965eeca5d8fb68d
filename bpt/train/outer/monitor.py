"""Monitor: logs the events of a run on the main server, and records them for the reports."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from bpt.base.log import number
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.sample_partition import size
from bpt.engine.optim import lr_policy
from bpt.parallel.outer.outer_instructions import AverageSubmitted, Migrated, Order, Settled, SubmissionReport
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.train.outer.report import AllocationRow, MigrationRow, NodeRow, RunRecord, UpdateRow
from bpt.train.solver.display import DisplayInterval, display_line
from bpt.train.solver.milestones import Listener, WorkersDisplayed, WorkerTimes

LOG = logging.getLogger("bpt")

_Layout, _Inner = pb.SolverParameter.Engine, pb.InnerParameter.Engine


class Monitor:
    """Records the events of a run.

    Args:
        names: names of the workers, such as "worker 2 (rank 3, host b)".
        hosts: hosts of the workers.
        ranks: ranks of the workers.
        record: the record that gets the rows.
        iteration: the iteration at which the run begins.
        silent: whether to log no line for an update; ASGD has an update in every iteration.
        notify: function to call with a milestone for each displayed iteration.
    """

    def __init__(
        self,
        plan: RunPlan,
        names: Sequence[str],
        hosts: Sequence[str],
        ranks: Sequence[int],
        record: RunRecord,
        iteration: int,
        silent: bool = False,
        notify: Listener = lambda milestone: None,
    ) -> None:
        self.record = record
        self._start = time.perf_counter()
        self._plan = plan
        self._names = names
        self._hosts = hosts
        self._silent = silent
        self._shown = iteration
        self._lap = DisplayInterval(iteration)
        self._reports: dict[int, SubmissionReport] = {}  # newest report by worker
        self._ended: dict[int, float] = {}  # time of the last submission by worker
        self._lost: dict[int, float] = {}  # time at which the loss of a worker was noticed
        self._samples = [0] * len(names)
        self._totals = [(0.0, 0.0, 0)] * len(names)  # computed, waited, submissions
        self._losses: dict[int, float] = {}
        self._ranks = ranks
        self._notify = notify
        self._since_shown: dict[int, WorkerTimes] = {}  # by worker, of its submissions since the last display
        self._shown_times: dict[int, WorkerTimes] = {}  # by worker, as displayed last

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.perf_counter() - self._start

    def submitted(self, report: SubmissionReport) -> None:
        """Record a worker's submission."""
        worker = report.worker
        self._reports[worker] = report
        self._ended[worker] = self.seconds
        computed, waited, count = self._totals[worker]
        self._totals[worker] = computed + report.seconds, waited + report.waited, count + 1
        self._note_times(report)
        if not math.isnan(report.loss):
            self._losses[worker] = report.loss

    def merged(self, update: AgwuUpdate, moved: int) -> None:
        """Record a version of AGWU or ASGD made from a submission; ``moved``: bytes of the worker's weights so far."""
        report = self._reports[update.worker]
        self._row(report, update.version, update.base, update.staleness, update.gamma, update.factor, moved)
        if self._silent:
            return
        LOG.info(
            "Version %d: %s, from version %d (staleness %d), gamma %s * accuracy %s%s%s = factor %s; %s",
            update.version, self._names[update.worker], update.base, update.staleness, number(update.gamma),
            number(update.accuracy), "" if update.share == 1 else f" * samples {number(update.share)}",
            "" if update.damping == 1 else f" * damping {number(update.damping)}", number(update.factor),
            _trained(report),
        )  # fmt: skip

    def discarded(self, update: AgwuUpdate, moved: int) -> None:
        """Record a submission that was too stale, and made no version."""
        report = self._reports[update.worker]
        self._row(report, update.newest, update.base, update.staleness, update.gamma, 0.0, moved)
        if not self._silent:
            LOG.info(
                "Discarded: %s, from version %d (staleness %d); %s",
                self._names[update.worker], update.base, update.staleness, _trained(report),
            )  # fmt: skip

    def averaged(self, average: AverageSubmitted, moved: Sequence[int]) -> None:
        """Record a version that SGWU made from all submissions; ``moved``: bytes of each worker's weights so far."""
        for worker, factor, bytes_ in zip(average.workers, average.factors, moved, strict=True):
            report = self._reports[worker]
            self._row(report, average.version, average.version - 1, 0, math.nan, factor, bytes_)
            LOG.info(
                "Version %d: %s, accuracy %s, factor %s; %s",
                average.version, self._names[worker], number(report.accuracy), number(factor), _trained(report),
            )  # fmt: skip

    def sent(self, order: Order) -> None:
        """Record the samples that a worker gets with an order."""
        more = size(order.runs)
        self._samples[order.worker] -= size(order.gives)
        if not more:
            return
        worker = order.worker
        self._samples[worker] += more
        row = AllocationRow(order.batch, self.seconds, worker, more, self._samples[worker])
        self.record.allocation.append(row)
        LOG.info("Batch %d: %s gets %d samples, has %d", order.batch, self._names[worker], more, row.total)

    def migrated(self, move: Migrated) -> None:
        """Record samples that change hands: from whom, to whom, and why."""
        giver_before, giver_now, taker_before, taker_now = (time or math.nan for time in move.times)
        row = MigrationRow(
            self.seconds, move.giver, move.taker, move.samples, giver_before, giver_now, taker_before, taker_now,
            *move.longest,
        )  # fmt: skip
        self.record.migration.append(row)
        LOG.info(
            "Migration: %s gives %d samples to %s: a sample takes %s there and %s here; the longest pass is expected "
            "to take %.3g s, not %.3g s",
            self._names[move.giver], move.samples, self._names[move.taker], _pace(giver_before, giver_now),
            _pace(taker_before, taker_now), row.longest_after, row.longest_before,
        )  # fmt: skip

    def record_lost(self, worker: int, taken_over: bool) -> None:
        """Record the loss of a worker; ``taken_over``: whether others get its samples."""
        self._lost[worker] = self.seconds
        LOG.warning(
            "Lost: %s is gone: it was killed, ran out of memory, or its machine or network failed", self._names[worker]
        )
        if taken_over and self._samples[worker]:
            LOG.warning(
                "The run continues: its %d samples go to the other workers, with their next passes",
                self._samples[worker],
            )
        elif self._samples[worker]:
            LOG.warning("Its %d samples are no longer trained: no other worker has a pass left", self._samples[worker])

    def settled(self, settled: Settled) -> None:
        """Log how a worker has chosen to compute."""
        LOG.info(
            "Engine: %s computes in %s, by %s", self._names[settled.worker], _Layout.Name(settled.engine),
            _Inner.Name(settled.inner),
        )  # fmt: skip

    def display(self, iteration: int) -> None:
        """Show the loss if ``display`` iterations have passed."""
        every = self._plan.display
        if not every or iteration // every == self._shown // every or not self._losses:
            return
        self._shown = iteration
        interval, rate = self._lap.take(iteration), lr_policy.learning_rate(self._plan.optim, iteration)
        LOG.info("%s", display_line(iteration, self.loss, interval, every))
        LOG.info("Iteration %d, lr = %s", iteration, number(rate))
        self._notify(WorkersDisplayed(iteration, self.loss, rate, *interval, self._times()))

    def _note_times(self, report: SubmissionReport) -> None:
        worker = report.worker
        before = self._since_shown.get(worker, WorkerTimes(self._ranks[worker], self._hosts[worker], 0.0, 0.0, 0))
        self._since_shown[worker] = replace(
            before,
            computing=before.computing + report.seconds,
            waiting=before.waiting + report.waited,
            samples=before.samples + report.samples,
        )

    def _times(self) -> list[WorkerTimes]:
        """Return what the workers did since the last call; of those that submitted nothing, what they did before."""
        self._shown_times |= self._since_shown
        self._since_shown = {}
        return [times for _, times in sorted(self._shown_times.items())]

    @property
    def loss(self) -> float:
        """The mean of the workers' newest losses; NaN if there is none yet."""
        return sum(self._losses.values()) / len(self._losses) if self._losses else math.nan

    def record_loss(self, worker: int, loss: float) -> None:
        """Record a worker's loss."""
        self._losses[worker] = loss

    def finish(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Record the end of the run.

        Args:
            sent, received: bytes of weights that each worker has sent and received.
        """
        end = self.record.seconds = self.seconds
        for worker, (computed, waited, updates) in enumerate(self._totals):
            report = self._reports.get(worker)
            idle = 0.0 if worker in self._lost else end - self._ended.get(worker, end)
            row = NodeRow(
                worker, self._hosts[worker], self._samples[worker], float(report.passes if report else Fraction(0)),
                computed, waited, idle, updates, sent[worker], received[worker], self._lost.get(worker, math.nan),
            )  # fmt: skip
            self.record.nodes.append(row)

    def _row(
        self, report: SubmissionReport, version: int, base: int, staleness: int, gamma: float, factor: float, moved: int
    ) -> None:
        worker = report.worker
        row = UpdateRow(
            version, self.seconds, worker, self._hosts[worker], base, staleness, gamma, report.accuracy, factor,
            float(report.passes), report.samples, report.seconds, report.waited, report.loss, moved,
        )  # fmt: skip
        self.record.updates.append(row)


def _pace(before: float, now: float) -> str:
    """Return a worker's seconds of a sample, now and when the samples were divided."""
    return f"{now:.3g} s" + ("" if math.isnan(before) else f" ({before:.3g} s when the samples were divided)")


def _trained(report: SubmissionReport) -> str:
    return (
        f"pass {number(float(report.passes))}: {report.samples} samples in {report.seconds:.3g} s, "
        f"waited {report.waited:.3g} s, loss = {number(report.loss)}"
    )
