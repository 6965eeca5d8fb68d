"""A rank of the calibration of ``scripts/bench bptcnn``: what ``bpt simulate`` must know of the test bed.

Rank 0, the server, does nothing while all others train at the same time, as they do in a run: by the same worker, which
counts, tells and looks for orders between its iterations, and lets the first of them be like all others before. Then
messages go to one of them after the other and back, and the server merges weights, with pauses in between: a host with
a small share of the processor does a short piece of work at once, but not one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch

from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto.sources import read_solver
from bpt.nn.layers.base import batch_of
from bpt.parallel.outer.outer_instructions import Merge, Order, Settled, SubmissionReport
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.cores import power
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.data_set import samples_of
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.outer.global_weights import GlobalWeights
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.node_solvers import worker_runtime
from bpt.train.outer.trainer import Trainer
from bpt.train.outer.worker import Worker
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import RunOutcome, Solver

PASSES = Fraction(10**6)  # more than there is time for
REPEATS, PAUSE = 30, 0.03  # of messages and merges; seconds
SERVER, TAG = 0, 1


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any] | None:
    """A rank: what is to be known, on the server.

    Args:
        order: ``solver``: its text; ``seconds`` to train for.
    """
    plan = replace(resolve(read_solver(order["solver"])).training_only(), parallel_param=ParallelSpec())
    seen: dict[str, Any] = {"host": world.host, "frequency": power()}
    if world.rank != SERVER:
        found, weights = trained(plan, order["seconds"], world)
        seen |= found
    else:
        with Solver(plan) as solver:
            flat = FlatWeights(solver.net)
            weights = flat.pack()
            world.Barrier()
    world.Barrier()
    small = np.zeros(16)
    links = [
        {"small": round_trip(world, rank, small) / 2, "large": round_trip(world, rank, weights) / 2}
        for rank in range(1, world.size)
    ]
    merge = merging(weights, flat.trained) if world.rank == SERVER else 0.0
    nodes = [node | link for node, link in zip(world.allgather(seen)[1:], links, strict=True)]
    return {"weights": weights.nbytes, "nodes": nodes, "merge": merge} if world.rank == SERVER else None


def trained(plan: RunPlan, seconds: float, world: Communicator) -> tuple[dict[str, Any], Buffer]:
    """Samples a second, how iterations vary (standard deviation as a part of the mean), and seconds until a worker is
    warm; and the weights. All ranks but the server call it."""
    assignment = Assignment(max(plan.random_seed, 0), 0, plan.max_iter, PASSES, gradients=False)
    with worker_runtime(plan, world.rank - 1, assignment, torch.device("cpu"), quiet=True) as runtime:
        trainer = TimedTrainer(runtime, world.Barrier)
        link = AllSamples(samples_of(runtime.net, plan.parallel_param.exchange), seconds)
        Worker(world.rank - 1, trainer, link, assignment).run()
        times = [end - start for start, end in pairwise([trainer.begun, *link.ends])]
        speed = batch_of(runtime.net.graph) / fmean(times)
        found = {"speed": speed, "noise": stdev(times) / fmean(times), "warm_up": trainer.seconds}
        return found, trainer.trained()


class TimedTrainer(Trainer):
    """Notes how long it takes to be warm.

    Args:
        meet: called then.

    Attributes:
        seconds: that it took.
        begun: when it was warm, and all others were.
    """

    def __init__(self, runtime: Runtime, meet: Callable[[], object]) -> None:
        super().__init__(runtime, gradients=False)
        self._meet = meet
        self.seconds = self.begun = 0.0

    def warm_up(self) -> None:
        self.seconds = timed(super().warm_up)
        self._meet()
        self.begun = time.perf_counter()


class AllSamples:
    """Stands for the server: gives a worker all samples, and lets it train for some seconds. See ToServer.

    Attributes:
        ends: of the worker's iterations.
    """

    def __init__(self, samples: int, seconds: float) -> None:
        self._samples, self._seconds = samples, seconds
        self.ends: list[float] = []

    def order(self) -> tuple[Order, Buffer | None]:
        """All, and then nothing more."""
        if self.ends:
            return Order(0, 0, weights=False, stop=True), None
        return Order(0, 0, PASSES, runs=((0, self._samples),), weights=False), None

    @property
    def hurried(self) -> bool:
        """Whether time is over; asked after each iteration."""
        self.ends.append(time.perf_counter())
        return self.ends[-1] - self.ends[0] > self._seconds

    def report(self, word: WorkerProgress | Settled) -> None:
        """Nobody listens."""

    def submit(self, report: SubmissionReport, weights: Buffer) -> None:
        """Nobody takes them."""

    def finished(self) -> RunOutcome:
        """As a run would have ended."""
        return RunOutcome(0, terminated=False)


def timed(task: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def round_trip(world: Communicator, rank: int, buffer: Buffer) -> float:
    """Seconds that ``buffer`` takes to ``rank`` and back, on the server; a collective call."""
    world.Barrier()
    times = []
    for _ in range(REPEATS):
        if world.rank == SERVER:
            time.sleep(PAUSE)
            start = time.perf_counter()
            world.Send(buffer, rank, TAG)
            world.Recv(buffer, rank, TAG)
            times.append(time.perf_counter() - start)
        elif world.rank == rank:
            world.Recv(buffer, SERVER, TAG)
            world.Send(buffer, SERVER, TAG)
    world.Barrier()
    return median(times) if times else 0.0


def merging(weights: Buffer, trained: int) -> float:
    """Seconds that AGWU takes to merge what a worker has submitted."""
    held = GlobalWeights(weights, trained)
    held.fetch(0)
    merge = Merge(AgwuUpdate(worker=0, base=0, newest=1, gamma=0.5, accuracy=1.0))
    times = []
    for _ in range(REPEATS):
        held.submit(0, weights.copy())
        time.sleep(PAUSE)
        times.append(timed(lambda: held.merge(merge)))
    return median(times)
