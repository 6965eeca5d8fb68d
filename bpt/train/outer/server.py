"""Server: the main server and the parameter server, on rank 0 (BPT-CNN, section 3.2.2)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from bpt.base.errors import RunError
from bpt.base.progress import ProgressBar
from bpt.base.signals import SignalAction, SignalActions
from bpt.config.plan.run_plan import RunPlan
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    Discard,
    Lost,
    Merge,
    Migrated,
    OuterInstruction,
    SendOrder,
    Settled,
)
from bpt.parallel.outer.replay import Replay
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.background_evaluator import BackgroundEvaluator, Moment
from bpt.train.outer.global_weights import GlobalWeights
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.monitor import Monitor
from bpt.train.outer.parameter_server import ShardedWeightsClient
from bpt.train.outer.replay_log import ReplayLog
from bpt.train.outer.server_update import ServerUpdate
from bpt.train.outer.worker_links import Event, Submission, ToWorker, WorkerLost
from bpt.train.solver.solver import RunOutcome
from bpt.train.state import state_path

LOG = logging.getLogger("bpt")

PAUSE = 0.0005  # seconds to sleep when no message has arrived


class MainServer:
    """Waits for workers' submissions, and executes the schedule's instructions.

    Args:
        schedule: decides the next instructions.
        weights: the global weights.
        links: the links to the workers, in the order of their numbers.
        assignment: the data of the run that all workers have.
        monitor: records the events of the run.
        evaluator: tests and writes snapshots.
        server_update: the update rule of ASGD.
        log: the log for a replay.
        signals: the signals of this process.
        events: the events of this rank.
    """

    def __init__(
        self,
        plan: RunPlan,
        schedule: OuterSchedule | Replay,
        weights: GlobalWeights | ShardedWeightsClient,
        links: Sequence[ToWorker],
        assignment: Assignment,
        monitor: Monitor,
        evaluator: BackgroundEvaluator,
        server_update: ServerUpdate | None = None,
        log: ReplayLog | None = None,
        signals: SignalActions | None = None,
        events: EventBus | None = None,
    ) -> None:
        self.stopped = False  # whether a signal has stopped the run
        self.terminated = False  # whether this was SIGTERM
        self.short = False  # whether a replay has ended before its run
        self.version = 0
        self._plan = plan
        self._schedule = schedule
        self._weights = weights
        self._links = links
        self._assignment = assignment
        self._monitor = monitor
        self._evaluator = evaluator
        self._server_update = server_update
        self._log = log
        self._signals = signals
        self._events = events or EventBus()
        self._snapshot_at = -1
        self._reached = assignment.first  # the iteration of the newest version
        self._epoch = 0.0

    def run(self, frequencies: Sequence[float | None]) -> None:
        """Serve until every worker has stopped; ``end`` then releases them.

        Args:
            frequencies: as in ``Idpa.first``.

        Raises:
            RunError: all workers are lost; a snapshot has their submissions.
        """
        plan, first = self._plan, self._assignment.first
        with ProgressBar(first + self._assignment.iterations, first, "training") as bar:
            if plan.test_iter and (first > 0 or plan.test_initialization):
                self._evaluator.test(self._moment())
            self._execute(self._schedule.begin(frequencies))
            while not (self._schedule.done and all(link.idle for link in self._links)):
                events = [event for event in (link.poll() for link in self._links) if event is not None]
                for event in events:
                    self._serve(event, bar)
                self._evaluator.yield_cores(not all(link.idle for link in self._links))
                if self._signals:
                    self._act(self._signals.take(), self._signals.terminated)
                self._evaluator.check()
                if not events:
                    time.sleep(PAUSE)
        self._finish()

    def _serve(self, event: Event, bar: ProgressBar) -> None:
        match event:
            case WorkerProgress():
                self._schedule.progressed(event.worker, event.samples, event.seconds)
                self._monitor.record_loss(event.worker, event.loss)
                self._act(event.action, event.terminated)
            case Submission(report, weights):
                self._weights.submit(report.worker, weights)
                self._monitor.submitted(report)
                self._execute(self._schedule.submitted(report))
                bar.to(self._reached, self._monitor.loss)
            case Settled():
                self._monitor.settled(event)
                if self._log:
                    self._log.add(event)
            case WorkerLost(worker):
                self._execute(self._lost(worker))
                self._weights.forget(worker)

    def _lost(self, worker: int) -> list[OuterInstruction]:
        """Return the instructions that follow from the loss of a worker."""
        try:
            instructions = self._schedule.lost(worker)
        except RunError:
            self._monitor.record_lost(worker, taken_over=False)
            self._snapshot()
            self._evaluator.finish()
            raise
        self._monitor.record_lost(worker, any(isinstance(each, Lost) and each.taken_over for each in instructions))
        return instructions

    def _execute(self, instructions: Sequence[OuterInstruction]) -> None:
        version = self.version
        for instruction in instructions:
            match instruction:
                case Merge(update):
                    with self._events.during(Activity.MERGE):
                        self._weights.merge(instruction)
                    self.version = update.version
                    self._monitor.merged(update, self._moved(update.worker))
                case AverageSubmitted(workers):
                    with self._events.during(Activity.MERGE):
                        self._weights.average(instruction)
                    self.version = instruction.version
                    self._monitor.averaged(instruction, [self._moved(worker) for worker in workers])
                case ApplyGradient(update, progress):
                    assert self._server_update is not None and isinstance(self._weights, GlobalWeights)
                    gradients = self._weights.gradient(instruction)
                    iteration = self._assignment.iteration(progress * self._assignment.total)
                    with self._events.during(Activity.MERGE):
                        self._weights.newest = self._server_update.apply(
                            self._weights.newest, gradients, iteration, update.damping
                        )
                    self.version = update.version
                    self._monitor.merged(update, self._moved(update.worker))
                case Discard(update):
                    self._monitor.discarded(update, self._moved(update.worker))
                case Migrated():
                    self._monitor.migrated(instruction)
                case SendOrder(order):
                    weights = self._weights.fetch(order.worker) if order.weights else None
                    self._links[order.worker].send(order, weights)
                    self._monitor.sent(order)
                case _:
                    pass  # only the log needs it
            if self._log:
                self._log.add(instruction)
        if self.version != version:
            self._handle_version()

    def _moved(self, worker: int) -> int:
        return self._links[worker].sent + self._links[worker].received

    def _advance(self) -> int:
        """Update the progress of the run, and return the iteration before; no loss lets the iteration fall."""
        passes = self._schedule.progress * self._assignment.total
        before, self._epoch = self._reached, float(self._assignment.epochs(passes))
        self._reached = max(before, self._assignment.iteration(passes))
        return before

    def _handle_version(self) -> None:
        """Handle a new version: show the loss, test and write snapshots if these are due."""
        before = self._advance()
        now, plan = self._reached, self._plan
        self._monitor.display(now)
        end = self._assignment.first + self._assignment.iterations
        if plan.test_iter and now < end and before // plan.test_interval < now // plan.test_interval:
            self._evaluator.test(self._moment())
        if plan.snapshot and before // plan.snapshot < now // plan.snapshot:
            self._snapshot()

    def _act(self, action: SignalAction, terminated: bool) -> None:
        """Execute the action of a signal to any rank; ``terminated``: whether it was SIGTERM."""
        self.terminated |= terminated
        if action is SignalAction.SNAPSHOT:
            self._snapshot()
        elif action is SignalAction.STOP and not self.stopped:
            self.stopped = True
            LOG.info("Stopping: the workers submit what they have trained")
            self._schedule.stop()
            for link in self._links:
                link.hurry()

    def _snapshot(self) -> None:
        if self._reached != self._snapshot_at:
            self._snapshot_at = self._reached
            self._evaluator.snapshot(replace(self._moment(), memory=self._weights.memory()))

    def _moment(self) -> Moment:
        return Moment(self._reached, self._epoch, self.version, self._weights.newest, self._monitor.seconds)

    def _finish(self) -> None:
        self._advance()
        self._monitor.finish([link.received for link in self._links], [link.sent for link in self._links])
        if isinstance(self._schedule, Replay) and not self.stopped:
            self._log_replay_end(self._schedule)
        if self._plan.snapshot_after_train and not (self.short and not self.version):  # never untrained weights
            self._snapshot()
        if self._plan.test_iter and not self.stopped:
            self._evaluator.test(self._moment(), always=True)
        self._evaluator.finish()
        self._monitor.record.tests.extend(self._evaluator.tests)
        if self.stopped:
            self._log_saved()
        LOG.info("Optimization stopped early." if self.stopped else "Optimization Done.")

    def _log_saved(self) -> None:
        if self._reached == self._snapshot_at:
            path = state_path(self._plan, self._reached)
            LOG.info("Stopped after %d iterations, all of them saved; --snapshot %s continues", self._reached, path)
        else:
            since = max(self._snapshot_at, self._assignment.first)
            lost = f"{self._reached - since} iterations since iteration {since}"
            LOG.warning("Stopped after %d iterations without a snapshot; lost: %s", self._reached, lost)

    def _log_replay_end(self, replay: Replay) -> None:
        """Report a replay that ends before all passes are done."""
        place = f"at iteration {self._reached} of {self._assignment.first + self._assignment.iterations}"
        self.short = replay.broken or replay.short
        self.stopped = self.short or replay.stopped
        if replay.broken:
            LOG.warning("Replay: it ends %s: a worker was lost, or lines are missing in the log", place)
        elif replay.short:
            LOG.warning(
                "Replay: the log ends after %d decisions, %s; the run that wrote it was stopped there, or the file was "
                "cut", replay.decisions, place,
            )  # fmt: skip
        elif replay.stopped:
            LOG.info("Replay: the run that wrote the log was stopped %s, and so is its replay", place)

    def end(self) -> RunOutcome:
        """Send the outcome of the run to the workers after all writing, so that all ranks end in the same way."""
        outcome = RunOutcome(self._reached, self.terminated, self.short)
        for link in self._links:
            link.finish(outcome)
        while not all(link.idle for link in self._links):
            for link in self._links:
                link.poll()
            time.sleep(PAUSE)
        return outcome
