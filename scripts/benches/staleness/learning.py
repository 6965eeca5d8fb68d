"""A run of the outer layer whose clock is virtual and whose arithmetic is real.

The simulator decides when each submission arrives, by the speeds of the nodes. The weights are those that the workers
train. So accuracy depends on speeds that no test bed has to provide, and the same call gives the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers.base import batch_of
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.exchanges import make_schedule, passes_of
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    Merge,
    Order,
    OuterInstruction,
    Settled,
    SubmissionReport,
)
from bpt.parallel.outer.simulation.simulated_worker import SimulatedWorker
from bpt.parallel.outer.simulation.simulator import SimulatedJob, Simulator
from bpt.system.comm.base import Buffer
from bpt.system.device import CPU
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.data_set import samples_of
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.outer.global_weights import GlobalWeights
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.node_solvers import server_solver, worker_runtime
from bpt.train.outer.server_update import ServerUpdate
from bpt.train.outer.trainer import Trainer
from bpt.train.outer.worker import Worker
from bpt.train.solver.solver import RunOutcome, Solver
from bpt.train.state.weights import save_weights


class _NoLink:
    """A link to nobody: the worker is called directly."""

    hurried = False

    def report(self, word: WorkerProgress | Settled) -> None:
        """Ignore progress, which the simulator knows."""

    def submit(self, report: SubmissionReport, weights: Buffer) -> None:
        raise AssertionError(report)

    def order(self) -> tuple[Order, Buffer | None]:
        raise AssertionError

    def finished(self) -> RunOutcome:
        raise AssertionError


class LearningSimulator(Simulator):
    """A Simulator whose workers train, and whose server updates weights.

    Args:
        workers: in order.
        weights: version 0 on the server.
        update: the update rule of ASGD.
        assignment: of the workers.
    """

    def __init__(
        self, schedule: OuterSchedule, cluster: Cluster, job: SimulatedJob, workers: Sequence[Worker],
        weights: GlobalWeights, update: ServerUpdate, assignment: Assignment,
    ) -> None:  # fmt: skip
        super().__init__(schedule, cluster, job)
        self._trained = workers
        self._weights = weights
        self._update = update
        self._assignment = assignment
        self._fetched: dict[int, Buffer | None] = {}
        self._seen: dict[int, SubmissionReport] = {}

    def _carry_out(self, instructions: Iterable[OuterInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Merge():
                    self._weights.merge(instruction)
                case AverageSubmitted():
                    self._weights.average(instruction)
                case ApplyGradient(update, progress):
                    gradient = self._weights.gradient(instruction)
                    iteration = self._assignment.iteration(progress * self._assignment.total)
                    newest = self._update.apply(self._weights.newest, gradient, iteration, update.damping)
                    self._weights.newest = newest
            super()._carry_out([instruction])

    def _send(self, order: Order) -> None:
        if not order.stop:
            self._fetched[order.worker] = self._weights.fetch(order.worker) if order.weights else None
        super()._send(order)

    def _start(self, worker: SimulatedWorker, order: Order) -> None:
        trained = self._trained[order.worker]
        self._seen[order.worker] = trained.execute(order, self._fetched.pop(order.worker))
        self._weights.submit(order.worker, trained.trained())
        super()._start(worker, order)

    def _submitted(self, worker: SimulatedWorker, report: SubmissionReport) -> None:
        seen = self._seen[worker.number]
        assert (seen.passes, seen.samples) == (report.passes, report.samples), (seen, report)
        super()._submitted(worker, replace(report, accuracy=seen.accuracy, loss=seen.loss))


@dataclass(frozen=True)
class Learnt:
    """The result of a run.

    Attributes:
        seconds: on the virtual clock; the fastest node trains a sample in a second.
        staleness: mean of the updates.
        discarded: submissions.
    """

    seconds: float
    staleness: float = 0.0
    discarded: int = 0


def learn(plan: RunPlan, speeds: Sequence[float], weights: Path) -> Learnt:
    """Train by the outer layer on nodes of these speeds, and write the last weights to ``weights``."""
    with ExitStack() as stack:
        solver = stack.enter_context(server_solver(plan, CPU, "", None))
        net, parallel = solver.net, plan.parallel_param
        samples, batch = samples_of(net, parallel.exchange), batch_of(net.graph) * plan.optim.iter_size
        schedule = make_schedule(plan, samples, len(speeds), passes_of(plan.max_iter, batch, samples))
        flat = FlatWeights(net)
        asgd = parallel.exchange == pb.ParallelParameter.ASGD
        assignment = Assignment(
            solver.runtime.seed, 0, plan.max_iter, schedule.total, asgd, parallel.agwu_param.weigh_by_accuracy,
            batches=schedule.idpa.batches, elements=flat.size, trained=flat.trained, dtype=flat.dtype.str,
        )  # fmt: skip
        workers = []
        for number in range(len(speeds)):
            runtime = stack.enter_context(worker_runtime(plan, number, assignment, CPU, quiet=True))
            workers.append(Worker(number, Trainer(runtime, asgd), _NoLink(), assignment))
        held = GlobalWeights(flat.pack(), flat.trained)
        cluster = Cluster(tuple(Node(f"{speed:g}", speed) for speed in speeds))
        update = ServerUpdate(solver.runtime)
        job = SimulatedJob(batch, flat.size * flat.dtype.itemsize)
        outcome = LearningSimulator(schedule, cluster, job, workers, held, update, assignment).run()
        flat.load(held.newest)
        save_weights(net, str(weights))
        return Learnt(outcome.seconds, outcome.mean_staleness, outcome.discarded)


def learn_alone(plan: RunPlan, weights: Path) -> Learnt:
    """Train in one process of the fastest node's speed."""
    with Solver(plan.standalone()) as solver:
        solver.solve()
        save_weights(solver.net, str(weights))
        return Learnt(plan.max_iter * batch_of(solver.net.graph) * plan.optim.iter_size)
