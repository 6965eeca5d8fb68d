"""The event loop: the server and all workers of an outer layer on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, groupby
from typing import TypeAlias

from bpt.base.errors import RunError
from bpt.data.sample_partition import size
from bpt.parallel.cluster.cluster import NEVER, Cluster, Node
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    Instruction,
    Merge,
    Order,
    SendOrder,
    SubmissionReport,
)
from bpt.parallel.outer.simulation.outcome import NodeOutcome, SimulationOutcome, SimulationTotals
from bpt.parallel.outer.simulation.pace import Fifo, SpeedProfile

LEAST = 0.01  # of what an order takes in the mean; noise makes it no shorter


class SimulatedWorker:
    """A worker that counts its samples and its seconds; the simulator decides when events happen.

    It trains whole batches, which reach over the end of a pass, so the next pass may need an iteration less. The time
    of an order is drawn once: the sum of i iterations that vary independently has √i times the standard deviation of
    one.

    Args:
        number: of the worker.
        batch: samples of an iteration.
        seed: of its noise. Order k of a worker draws the same number whatever the schedule is, so that schedules can be
            compared.

    Attributes:
        samples: that it has.
        passes: that it has done.
        trained: samples that it has trained, in all passes together.
        computing, waiting: seconds; of what is over.
        warming: seconds in which it got ready, before its first iteration.
        ready: since when it waits for the server; ``None``: it is training.
        stopped: when it stopped or died.
        died: whether it died.
    """

    def __init__(self, number: int, node: Node, batch: int, seed: object) -> None:
        self.number = number
        self.node = node
        self.samples = 0
        self.passes = Fraction(0)
        self.trained = 0
        self.computing = 0.0
        self.waiting = 0.0
        self.warming = 0.0
        self.ready: float | None = 0.0
        self.stopped = NEVER
        self.died = False
        self._batch = batch
        self._pace = SpeedProfile(node.changes)
        self._cold = node.warm_up  # seconds of it that are still to come
        self._generator = random.Random(f"{seed}/{number}")
        self._position = (0, 0)  # whole passes, and samples of the next, that it has trained
        # Of the order that it works at, or has done last:
        self._began = 0.0
        self._ends = 0.0
        self._work = 0.0
        self._waited = 0.0
        self._iterations = 0
        self._until = Fraction(0)

    @property
    def active(self) -> bool:
        """Whether it has neither stopped nor died."""
        return self.stopped == NEVER

    @property
    def between_passes(self) -> bool:
        """Whether it has ended a pass and has no order to begin another."""
        return self.ready is not None and self.passes.denominator == 1

    def start(self, order: Order, now: float) -> float:
        """Begin to train; return when the order is done."""
        assert self.ready is not None, (self.number, "is training")
        self._waited = now - self.ready
        self.waiting += self._waited
        self.ready = None
        if not self.samples:  # it may have got its first samples later than others
            self._position = (order.passes.numerator // order.passes.denominator, 0)
        self.samples += size(order.runs)
        self._until = order.until
        self._iterations = self._iterations_of(order)
        self._work = self._iterations * self._batch / self.node.speed
        if self.node.noise:
            noise = self.node.noise * self._generator.gauss(0, 1)
            self._work *= max(LEAST, 1 + noise / max(self._iterations, 1) ** 0.5)
        self.warming += self._cold
        self._began, self._cold = now + self._cold, 0.0
        self._ends = self._pace.end(self._began, self._work)
        return self._ends

    def finish(self) -> SubmissionReport:
        """Finish the order; return the worker's report."""
        seconds, samples = self._ends - self._began, self._iterations * self._batch
        self.passes = self._until
        if self.samples:
            done = self._done + samples
            self._position = divmod(done, self.samples)
            self.passes = min(Fraction(done, self.samples), self._until)
        self.trained += samples
        self.computing += seconds
        self.ready = self._ends
        return SubmissionReport(self.number, self.passes, self._iterations, samples, seconds, self._waited)

    def progress(self, now: float) -> tuple[int, float]:
        """Return the samples of its last order trained in whole iterations, and their seconds."""
        if now >= self._ends:
            return self._iterations * self._batch, self._ends - self._began
        if now <= self._began:
            return 0, 0.0
        done = self._pace.done(self._began, now) / self._work * self._iterations
        iterations = int(done)
        return iterations * self._batch, (now - self._began) * iterations / done if iterations else 0.0

    def stop(self, now: float, died: bool = False) -> None:
        """Stop training."""
        if self.ready is None:
            self.computing += max(now - self._began, 0.0)
            self.warming -= max(self._began - now, 0.0)
        else:
            self.waiting += now - self.ready
        self.stopped = now
        self.died = died

    @property
    def _done(self) -> int:
        """The samples trained, if it had had all its samples from the start."""
        return self._position[0] * self.samples + self._position[1]

    def _iterations_of(self, order: Order) -> int:
        goal = -(-order.until.numerator * self.samples // order.until.denominator)
        iterations = max(0, -(-(goal - self._done) // self._batch))
        return min(iterations, order.iterations or iterations)


_Event: TypeAlias = tuple[float, int, Callable[..., None], tuple[object, ...]]
"""When, which of those at that time, what, and with which arguments."""


@dataclass(frozen=True)
class SimulatedJob:
    """The training job, as far as time depends on it.

    Attributes:
        batch: samples of an iteration of a worker.
        weights: c_w, bytes of all weights, and of all gradients.
        record: bytes of a sample, if the server sends them; 0: nodes read their samples themselves, in no time.
    """

    batch: int
    weights: int
    record: int = 0


def simulate(schedule: OuterSchedule, cluster: Cluster, job: SimulatedJob, seed: int = 0) -> SimulationOutcome:
    """Run ``schedule`` to its end.

    An order of the server travels to its worker with the weights, the worker trains, what it submits travels back and
    is merged, and the schedule says what comes next. Messages of all nodes share the server's link, first come, first
    served, each way for itself; so do the merges its arithmetic. Accuracies are not modelled: Q is 1.

    Args:
        schedule: as it is before ``begin``; of as many workers as the cluster has nodes.
        seed: of the noise.

    Raises:
        RunError: all nodes have died.
    """
    return Simulator(schedule, cluster, job, seed).run()


class Simulator:
    """One run of ``simulate``.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self, schedule: OuterSchedule, cluster: Cluster, job: SimulatedJob, seed: int = 0) -> None:
        self.now = 0.0
        self._schedule = schedule
        self._cluster = cluster
        self._job = job
        self._workers = [SimulatedWorker(number, node, job.batch, seed) for number, node in enumerate(cluster.nodes)]
        self._ledger = SimulationTotals(len(cluster.nodes))
        self._away, self._back, self._merging = Fifo(), Fifo(), Fifo()
        self._events: list[_Event] = []
        self._numbers = count()  # of several events at one time the first to be told comes first
        self._active = len(cluster.nodes)

    def run(self) -> SimulationOutcome:
        """Run from the start until every node has stopped or died."""
        mortal = sorted((worker for worker in self._workers if worker.node.fails < NEVER), key=_death)
        for moment, dying in groupby(mortal, key=_death):
            self._at(moment, self._die, *dying)
        self._carry_out(self._schedule.begin(self._cluster.frequencies))
        while self._active:
            if not self._events:
                raise RunError(f"the simulated run stands still after {self.now:g} s: {self._active} nodes wait")
            self.now, _, happen, arguments = heapq.heappop(self._events)
            self._ledger.events += 1
            happen(*arguments)
        return self._outcome()

    def _at(self, time: float, happen: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), happen, arguments))

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, SendOrder):
                self._send(instruction.order)
            elif isinstance(instruction, (Merge, ApplyGradient)):
                self._ledger.updated(instruction.update.staleness)
            elif isinstance(instruction, AverageSubmitted):
                self._ledger.updated()

    def _send(self, order: Order) -> None:
        """Send an order from the server."""
        worker = self._workers[order.worker]
        if order.stop:
            worker.stop(self.now)
            self._active -= 1
            return
        seconds = 0.0
        if self._travels(worker):
            weights, data = self._job.weights * order.weights, self._job.record * size(order.runs)
            self._ledger.weight_bytes += weights
            self._ledger.data_bytes += data
            seconds = self._pass(self._away, worker, weights + data) + self._latency(worker) - self.now
        self._at(self.now + seconds, self._start, worker, order)

    def _start(self, worker: SimulatedWorker, order: Order) -> None:
        """Start a worker that has got its order."""
        if worker.active:
            self._at(worker.start(order, self.now), self._submit, worker)

    def _submit(self, worker: SimulatedWorker) -> None:
        """Submit the report of a worker that has done its order."""
        if not worker.active:
            return
        report = worker.finish()
        if not self._travels(worker):
            self._merge(worker, report)
            return
        self._ledger.weight_bytes += self._job.weights
        self._at(self.now + self._latency(worker), self._enter, worker, report)

    def _enter(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Pass a submission, whose first byte has arrived, through the server's link."""
        if worker.active:
            self._at(self._pass(self._back, worker, self._job.weights), self._merge, worker, report)

    def _merge(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Merge a submission whose last byte has arrived."""
        if worker.active:
            seconds = self._job.weights / self._cluster.server.update_rate
            self._at(self._merging.serve(self.now, seconds) + seconds, self._submitted, worker, report)

    def _submitted(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Let the schedule act on a submission that has been merged, or waits for those of others."""
        if not worker.active:
            return
        self._ledger.computed(worker.number, float(report.passes), report.seconds)
        if worker.between_passes and self._schedule.hands_out(worker.number):
            self._tell_progress(worker)
        self._carry_out(self._schedule.submitted(report))

    def _tell_progress(self, submitting: SimulatedWorker) -> None:
        """Report to the schedule how far the other workers are in their passes."""
        for worker in self._workers:
            if worker.active and worker is not submitting:
                samples, seconds = worker.progress(self.now)
                if samples and seconds > 0:
                    self._schedule.progressed(worker.number, samples, seconds)

    def _die(self, *dying: SimulatedWorker) -> None:
        gone = [worker for worker in dying if worker.active]
        for worker in gone:
            worker.stop(self.now, died=True)
        self._active -= len(gone)
        if not gone:
            return
        try:
            instructions = self._schedule.lost(*(worker.number for worker in gone))
        except RunError as error:
            raise RunError(f"all nodes are dead after {self.now:g} s: {error}") from None
        self._carry_out(instructions)

    def _travels(self, worker: SimulatedWorker) -> bool:
        """Return whether the worker's messages take time and are counted."""
        return worker.number > 0 or not self._cluster.colocated

    def _latency(self, worker: SimulatedWorker) -> float:
        return worker.node.latency + self._cluster.server.latency

    def _pass(self, link: Fifo, worker: SimulatedWorker, nbytes: int) -> float:
        """Send a message through the server's link and the worker's at once.

        Returns when its end has passed both.
        """
        here = nbytes / self._cluster.server.bandwidth
        return link.serve(self.now, here) + max(here, nbytes / worker.node.bandwidth)

    def _outcome(self) -> SimulationOutcome:
        ledger = self._ledger
        return SimulationOutcome(
            seconds=self.now,
            nodes=tuple(self._node(worker) for worker in self._workers),
            durations=ledger.durations,
            updates=ledger.updates,
            staleness=ledger.staleness,
            exchanges=ledger.exchanges,
            weight_bytes=ledger.weight_bytes,
            data_bytes=ledger.data_bytes,
            weights=self._job.weights,
            events=ledger.events,
        )

    def _node(self, worker: SimulatedWorker) -> NodeOutcome:
        return NodeOutcome(
            name=worker.node.name,
            speed=worker.node.speed,
            samples=worker.samples,
            trained=worker.trained,
            passes=float(worker.passes),
            computing=worker.computing,
            waiting=worker.waiting,
            warming=worker.warming,
            idle=0.0 if worker.died else self.now - worker.stopped,
            died=worker.died,
        )


def _death(worker: SimulatedWorker) -> float:
    return worker.node.fails
