"""The event loop: the server and all workers of an outer layer on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from bpt.base.errors import RunError
from bpt.data.sample_partition import size
from bpt.parallel.cluster.cluster import NEVER, Cluster
from bpt.parallel.discrete_event import EventQueue, Resource
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    Discard,
    Merge,
    Order,
    OuterInstruction,
    SendOrder,
    SubmissionReport,
)
from bpt.parallel.outer.simulation.outcome import NodeOutcome, SimulationOutcome, SimulationTotals
from bpt.parallel.outer.simulation.simulated_worker import SimulatedWorker


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
    """One run of ``simulate``."""

    def __init__(self, schedule: OuterSchedule, cluster: Cluster, job: SimulatedJob, seed: int = 0) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._job = job
        self._workers = [SimulatedWorker(number, node, job.batch, seed) for number, node in enumerate(cluster.nodes)]
        self._totals = SimulationTotals(len(cluster.nodes))
        self._sending, self._receiving, self._merging = Resource(), Resource(), Resource()
        self._events = EventQueue()
        self._active = len(cluster.nodes)

    def run(self) -> SimulationOutcome:
        """Run from the start until every node has stopped or died."""
        mortal = sorted((worker for worker in self._workers if worker.node.fails < NEVER), key=_death)
        for moment, dying in groupby(mortal, key=_death):
            self._events.schedule(moment, self._die, *dying)
        self._carry_out(self._schedule.begin(self._cluster.frequencies))
        while self._active:
            if not self._events:
                raise RunError(
                    f"the simulated run stands still after {self._events.now:g} s: {self._active} nodes wait"
                )
            self._events.advance()
        return self._outcome()

    def _carry_out(self, instructions: Iterable[OuterInstruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, SendOrder):
                self._send(instruction.order)
            elif isinstance(instruction, (Merge, ApplyGradient)):
                self._totals.updated(instruction.update.staleness)
            elif isinstance(instruction, AverageSubmitted):
                self._totals.updated()
            elif isinstance(instruction, Discard):
                self._totals.discarded += 1

    def _send(self, order: Order) -> None:
        """Send an order from the server."""
        worker = self._workers[order.worker]
        if order.stop:
            worker.stop(self._events.now)
            self._active -= 1
            return
        seconds = 0.0
        if self._travels(worker):
            weights, data = self._job.weights * order.weights, self._job.record * size(order.runs)
            self._totals.weight_bytes += weights
            self._totals.data_bytes += data
            seconds = self._pass(self._sending, worker, weights + data) + self._latency(worker) - self._events.now
        self._events.schedule(self._events.now + seconds, self._start, worker, order)

    def _start(self, worker: SimulatedWorker, order: Order) -> None:
        """Start a worker that has got its order."""
        if worker.is_active:
            self._events.schedule(worker.start(order, self._events.now), self._submit, worker)

    def _submit(self, worker: SimulatedWorker) -> None:
        """Submit the report of a worker that has done its order."""
        if not worker.is_active:
            return
        report = worker.finish()
        if not self._travels(worker):
            self._merge(worker, report)
            return
        self._totals.weight_bytes += self._job.weights
        self._events.schedule(self._events.now + self._latency(worker), self._enter, worker, report)

    def _enter(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Pass a submission, whose first byte has arrived, through the server's link."""
        if worker.is_active:
            self._events.schedule(self._pass(self._receiving, worker, self._job.weights), self._merge, worker, report)

    def _merge(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Merge a submission whose last byte has arrived."""
        if worker.is_active:
            seconds = self._job.weights / self._cluster.server.update_rate
            self._events.schedule(
                self._merging.serve(self._events.now, seconds) + seconds, self._submitted, worker, report
            )

    def _submitted(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        """Let the schedule act on a submission that has been merged, or waits for those of others."""
        if not worker.is_active:
            return
        self._totals.computed(worker.number, float(report.passes), report.seconds)
        if worker.is_between_passes and self._schedule.hands_out(worker.number):
            self._report_progress(worker)
        self._carry_out(self._schedule.submitted(report))

    def _report_progress(self, submitting: SimulatedWorker) -> None:
        """Report to the schedule how far the other workers are in their passes."""
        for worker in self._workers:
            if worker.is_active and worker is not submitting:
                samples, seconds = worker.progress(self._events.now)
                if samples and seconds > 0:
                    self._schedule.progressed(worker.number, samples, seconds)

    def _die(self, *dying: SimulatedWorker) -> None:
        lost = [worker for worker in dying if worker.is_active]
        for worker in lost:
            worker.stop(self._events.now, died=True)
        self._active -= len(lost)
        if not lost:
            return
        try:
            instructions = self._schedule.lost(*(worker.number for worker in lost))
        except RunError as error:
            raise RunError(f"all nodes are dead after {self._events.now:g} s: {error}") from None
        self._carry_out(instructions)

    def _travels(self, worker: SimulatedWorker) -> bool:
        """Return whether the worker's messages take time and are counted."""
        return worker.number > 0 or not self._cluster.colocated

    def _latency(self, worker: SimulatedWorker) -> float:
        return worker.node.latency + self._cluster.server.latency

    def _pass(self, link: Resource, worker: SimulatedWorker, nbytes: int) -> float:
        """Send a message through the server's link and the worker's at once.

        Returns when its end has passed both.
        """
        here = nbytes / self._cluster.server.bandwidth
        start: float = link.serve(self._events.now, here)
        return start + max(here, nbytes / worker.node.bandwidth)

    def _outcome(self) -> SimulationOutcome:
        totals = self._totals
        return SimulationOutcome(
            seconds=self._events.now,
            nodes=tuple(self._node(worker) for worker in self._workers),
            durations=totals.durations,
            updates=totals.updates,
            staleness=totals.staleness,
            exchanges=totals.exchanges,
            weight_bytes=totals.weight_bytes,
            data_bytes=totals.data_bytes,
            weights=self._job.weights,
            events=self._events.happened,
            discarded=totals.discarded,
        )

    def _node(self, worker: SimulatedWorker) -> NodeOutcome:
        return NodeOutcome(
            name=worker.node.name,
            speed=worker.node.speed,
            samples=worker.samples,
            trained=worker.trained,
            passes=float(worker.passes),
            computing=worker.busy,
            waiting=worker.waiting,
            warming=worker.warming,
            idle=0.0 if worker.died else self._events.now - worker.stopped,
            died=worker.died,
        )


def _death(worker: SimulatedWorker) -> float:
    return worker.node.fails
