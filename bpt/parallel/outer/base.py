"""OuterSchedule: gives samples and weights to the workers of BPT-CNN's outer layer (section 3.3).

SGWU, AGWU and ASGD have in common the allocation of samples in batches (IDPA or UDPA), the count of passes, and workers
that join and leave.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.sample_partition import Allocation, Run, size
from bpt.parallel.outer.finish import Finish
from bpt.parallel.outer.idpa import Idpa, total_iterations
from bpt.parallel.outer.local_updates import submits_by_speed
from bpt.parallel.outer.migration import Migration, PlannedMove
from bpt.parallel.outer.outer_instructions import (
    CutShort,
    Lost,
    Migrated,
    Order,
    OuterInstruction,
    SendOrder,
    SubmissionReport,
)
from bpt.parallel.outer.outer_step import OuterSteps
from bpt.parallel.outer.worker_table import WorkerState, WorkerTable

DEFAULTS = ParallelSpec()


class OuterSchedule(ABC):
    """The decisions of what workers train next, and what happens to submitted weights.

    Every node trains its samples K' times (Eq. 6): once after each of the A batches that are handed out, and then the
    rest. The last pass may be a part of one, if K is not whole. Batch a is handed out when the first worker that needs
    it has done its pass a - 1; the others get their samples of it with their next order. Until all batches are handed
    out, a worker submits after every pass, later after ``local_epochs`` passes.

    Args:
        idpa: divides the samples; it must not have handed out a batch yet.
        passes: K, how often the samples are trained; need not be whole.
        local_epochs: passes before a worker submits.
        together: whether workers end at the same time; then some do more passes than others, as Finish says.
        migrate: whether samples change hands between workers whose speed has changed, as Migration says.
        settings: what the paper does not have: ``outer_param``, and ``local_updates`` and ``staleness`` of
            ``agwu_param``.

    Attributes:
        table: the workers.
        nodes: the record of each worker.
        total: K'.
    """

    _period = 0  # iterations after which a worker submits even within a pass; 0: never

    def __init__(
        self,
        idpa: Idpa,
        passes: Fraction,
        local_epochs: int = 1,
        together: bool = False,
        migrate: bool = False,
        settings: ParallelSpec = DEFAULTS,
    ) -> None:
        whole = passes.numerator // passes.denominator
        self.idpa = idpa
        self.total = passes if idpa.batches == 1 else total_iterations(whole, idpa.batches) + passes - whole
        self.table = WorkerTable(idpa.nodes, self.total)
        self.nodes = self.table.records
        self._local_epochs = local_epochs
        self._by_speed = settings.agwu_param.local_updates == pb.AgwuParameter.BY_SPEED
        self._steps = OuterSteps(settings.outer_param)
        self._finish = Finish() if together else None
        self._migration = Migration(idpa) if migrate else None
        self._migrated: list[OuterInstruction] = []  # since the last instructions
        self._stopping = False
        self._ended = 0  # workers whose end is settled
        self._given = False  # whether samples have been handed out since workers were last woken

    def begin(self, frequencies: Sequence[float | None]) -> list[OuterInstruction]:
        """Start all workers, with the first batch; ``frequencies`` as for ``Idpa.first``."""
        self._give(self.idpa.first(frequencies))
        return self._wake()

    def submitted(self, report: SubmissionReport) -> list[OuterInstruction]:
        """Return the instructions that follow from a worker's submission."""
        node = self.nodes[report.worker]
        assert node.state is WorkerState.TRAINING, (report, node)
        seconds, samples = node.submitted
        node.submitted = seconds + report.seconds, samples + report.samples
        node.clock += report.seconds + report.waited
        node.computed += report.seconds
        # Under ASGD a worker submits within a pass, too.
        if math.floor(report.passes) > math.floor(node.passes) or report.passes >= (node.end or self.total):
            node.end_pass(*node.submitted)
            node.submitted = 0.0, 0
        node.reported = 0.0, 0
        node.passes = report.passes
        self.table.update(report.worker)
        self._note(report.worker)
        self.table.set_state(report.worker, WorkerState.SUBMITTED)
        return [*self._cut(report), *self._with_moves(self._exchange(report)), *self._wake()]

    def progressed(self, worker: int, samples: int, seconds: float) -> None:
        """Note the samples and the seconds of a worker since its last order."""
        self.nodes[worker].reported = seconds, samples

    def hands_out(self, worker: int) -> bool:
        """Return whether a submission of ``worker`` that ends its pass may divide samples.

        It hands out the next batch, or samples may migrate: both go by the progress of the others.
        """
        return self._needs_batch(self.nodes[worker].passes // 1 + 1) or (self._migration is not None and self.idpa.done)

    def lost(self, *workers: int) -> list[OuterInstruction]:
        """Return what follows from the loss of workers: the others that still train get their samples.

        Raises:
            RunError: there are no others, and none has done all its passes either.
        """
        lost = tuple(
            w for w in sorted(set(workers)) if self.nodes[w].state not in (WorkerState.LOST, WorkerState.STOPPED)
        )
        reached = Fraction(max((self.nodes[worker].passes // 1 for worker in lost), default=0))
        for worker in workers:
            node = self.nodes[worker]
            self.table.set_state(worker, WorkerState.LOST)
            node.pending, node.gives, node.samples = [], [], 0
            self.table.update(worker)
            if self._finish is not None:
                self._finish.forget(worker)
        if not lost:
            return []
        if self._migration is not None:
            self._migration.clear()  # their samples are divided by the newest times
        heirs = set(self.idpa.present) - set(lost)
        if heirs or not self.table.count(WorkerState.STOPPED, WorkerState.TRAINING, WorkerState.SUBMITTED):
            for worker in self.table.workers(WorkerState.PARKED):  # they continue where the lost workers were
                node = self.nodes[worker]
                node.passes = max(node.passes, reached)
            times = [node.seconds_per_sample() for node in self.nodes]
            self._give(self.idpa.leave(*lost, seconds_per_sample=times))
        return [Lost(lost, bool(heirs)), *self._with_moves(self._without(lost)), *self._wake()]

    def stop(self) -> None:
        """Stop every worker when it submits, even if passes are left."""
        self._stopping = True

    def remember(self, *workers: int) -> None:  # noqa: B027  most schedules have no table
        """Continue a run whose server has the newest submissions of ``workers``."""

    @property
    def done(self) -> bool:
        """Whether all workers have stopped training."""
        return self.table.count(WorkerState.STOPPED, WorkerState.LOST) == len(self.nodes)

    @property
    def progress(self) -> Fraction:
        """The part of all training that is done (passes by samples), from 0 to 1."""
        return self.table.progress

    @abstractmethod
    def _exchange(self, report: SubmissionReport) -> list[OuterInstruction]:
        """Return the instructions for a worker's submission."""

    @abstractmethod
    def _without(self, lost: Sequence[int]) -> list[OuterInstruction]:
        """Return the instructions for the remaining workers after a loss."""

    @abstractmethod
    def _joins(self, worker: int) -> int:
        """Start a worker; return the version that it trains from."""

    @abstractmethod
    def _leaves(self, worker: int) -> None:
        """Note that a worker has done all its passes."""

    def _needs_batch(self, passes: Fraction | int) -> bool:
        """Return whether a worker that has done ``passes`` needs another batch."""
        return not self.idpa.done and not self._stopping and passes >= self.idpa.batch

    def _divide(self, *workers: int) -> None:
        """Hand out the next batch, if ``workers``, which are about to get orders, need it.

        If all samples are handed out, they may migrate.
        """
        if self._needs_batch(max(self.nodes[worker].passes for worker in workers)):
            self._hand_out()
        elif self._migration is not None and self.idpa.done and not self._stopping:
            self._migrate(self._migration, workers)

    def _migrate(self, migration: Migration, workers: Sequence[int]) -> None:
        """Let samples migrate if the speed of one of ``workers`` has changed; each gives what it is to give by now."""
        changed = any(migration.has_changed(worker, self.nodes[worker].steady) for worker in workers)
        if changed and not migration and not self._undelivered():
            migration.plan([node.steady_seconds_per_sample() for node in self.nodes])
        for worker in workers:
            if self.nodes[worker].passes.denominator == 1:
                for move in migration.pop(worker):
                    self._move(move)

    def _undelivered(self) -> bool:
        """Return whether samples are on their way to a worker."""
        return any(self.nodes[worker].pending for worker in self.idpa.present)

    def _move(self, move: PlannedMove) -> None:
        """Let samples change hands: the giver has ended its pass, and the taker gets them with its next one."""
        giver, taker = self.nodes[move.giver], self.nodes[move.taker]
        runs = self.idpa.move(move.giver, move.taker, move.samples)
        giver.gives += runs
        giver.samples -= move.samples
        taker.pending += runs
        if self._finish is not None:
            trains = taker.order if taker.state is WorkerState.TRAINING else None
            begin = trains.until if trains else Fraction(math.ceil(taker.passes))
            self._finish.owe(float((begin - giver.passes) * move.samples))
        for worker in (move.giver, move.taker):
            self.table.update(worker)
            self._note(worker)
        self._migrated.append(Migrated(move.giver, move.taker, move.samples, move.times, move.longest))

    def _with_moves(self, instructions: list[OuterInstruction]) -> list[OuterInstruction]:
        """Return the moves that were decided with ``instructions``, and then these."""
        moves, self._migrated = self._migrated, []
        return [*moves, *instructions]

    def _hand_out(self) -> None:
        """Hand out the next batch."""
        for node in self.nodes:
            if node.state is WorkerState.PARKED:
                node.passes = Fraction(self.idpa.batch)  # it has missed the passes before
        self._give(self.idpa.next([node.seconds_per_sample() for node in self.nodes]))

    def _give(self, more: Allocation) -> None:
        self._given = True
        for worker, runs in enumerate(more.runs):
            if runs:
                self.nodes[worker].pending += runs
                self.table.update(worker)
                self._note(worker)

    def _note(self, worker: int) -> None:
        """Update the moment at which all end, after a change of a worker."""
        node = self.nodes[worker]
        samples = node.all_samples
        if self._finish is not None and node.end is None and node.time and samples:
            seconds = node.time * node.clock / node.computed  # of a sample, waiting included
            self._finish.note(worker, seconds, node.clock, samples * float(self.total - node.passes))

    def _settle(self, worker: int, until: Fraction) -> None:
        """Determine whether an order to ``until`` is the worker's last, and where it ends then.

        Only the last order is made longer or shorter, so that all submit equally often (Eq. 11).
        """
        node, finish = self.nodes[worker], self._finish
        if node.end is not None or self._stopping or until < self.total:
            return
        node.end = self.total
        if finish is not None and worker in finish:
            if self.idpa.done and len(finish) + self._ended >= self.table.with_samples:
                samples = node.all_samples
                more = min(max(1, round(finish.samples(worker))), math.floor((self.total + 1 - node.passes) * samples))
                node.end = node.passes + Fraction(more, samples)
                finish.settle(worker, more)
            else:
                finish.forget(worker)
        self._ended += 1

    def _wake(self) -> list[OuterInstruction]:
        """Start parked workers that have got their first samples; at the end, stop the others."""
        sends: list[OuterInstruction] = []
        if self._given and not self._stopping and self.table.count(WorkerState.PARKED):
            ready = [worker for worker in self.table.workers(WorkerState.PARKED) if self.nodes[worker].pending]
            sends += [self._send(worker, self._joins(worker)) for worker in ready]
        self._given = False
        if not self.table.count(WorkerState.TRAINING, WorkerState.SUBMITTED):
            sends += [self._stop_untrained(worker) for worker in self.table.workers(WorkerState.PARKED)]
        return sends

    def _stop_untrained(self, worker: int) -> SendOrder:
        """Stop a worker that has not trained."""
        self.table.set_state(worker, WorkerState.STOPPED)
        return SendOrder(Order(worker, 0, weights=False, stop=True))

    def _send(self, worker: int, version: int, weights: bool = True) -> SendOrder:
        """Return the next order of a worker that has trained, or has joined."""
        node = self.nodes[worker]
        begun = math.floor(node.passes)
        until = self._goal(worker)
        self._settle(worker, until)
        ended = node.end is not None and node.passes >= node.end
        if ended or self._stopping:
            self.table.set_state(worker, WorkerState.STOPPED)
            self._leaves(worker)
            until = max(node.passes, self.total) if ended else node.passes  # so that a replay distinguishes them
            return SendOrder(Order(worker, version, until, node.passes, weights=False, stop=True))
        runs: tuple[Run, ...] = ()
        gives: tuple[Run, ...] = ()
        if node.passes == begun:  # within a pass its samples do not change
            runs, gives = tuple(node.pending), tuple(node.gives)
            node.pending.clear()
            node.gives.clear()
            node.samples += size(runs)
        self.table.set_state(worker, WorkerState.TRAINING)
        if node.end is not None:
            until = node.end
            if self.idpa.has(worker):  # samples of lost workers could not reach it any more
                self.idpa.retire(worker)
        batch = self.idpa.batch
        node.order = Order(worker, version, until, node.passes, runs, self._period, weights, batch=batch, gives=gives)
        return SendOrder(node.order)

    def _goal(self, worker: int) -> Fraction:
        """Return the passes after which a worker submits next."""
        node = self.nodes[worker]
        begun = math.floor(node.passes)
        if not self.idpa.done:
            return Fraction(begun + 1)
        until = submits_by_speed(node, self.nodes, self._local_epochs) if self._by_speed else None
        if until is None:
            return Fraction(begun + self._local_epochs)
        keeps = not (node.pending or node.gives or self._migration)  # samples change between two passes only
        return until if keeps else min(until, Fraction(begun + 1))

    def _cut(self, report: SubmissionReport) -> list[OuterInstruction]:
        order = self.nodes[report.worker].order
        assert order is not None, report
        if report.passes >= order.until or (order.iterations and report.iterations >= order.iterations):
            return []
        return [CutShort(report.worker, report.passes, report.iterations)]
