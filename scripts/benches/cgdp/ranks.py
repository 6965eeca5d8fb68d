"""A rank of a job of ``scripts/bench cgdp``: trains as it is told, and the first rank writes what was seen."""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.merge import apply_set
from bpt.system.comm.base import Communicator
from bpt.system.comm.launch import local_ranks
from bpt.system.device import choose_device, finish, synchronize
from bpt.system.device.memory_use import Memory
from bpt.system.events.totals import Totals, phase_seconds
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from scripts.benches.cgdp.gpu_trace import TRACED, record
from scripts.benches.cgdp.jobs import Way, Work
from scripts.benches.cgdp.nets import solver_source
from scripts.benches.harness.nets import Images, random_batch
from scripts.benches.harness.sides import fed
from scripts.benches.harness.turns import in_turn

AGAIN = 2  # iterations that do not count when a way takes its turn once more: caches are another one's


class Trainee:
    """A solver of this rank, fed with images that differ from rank to rank.

    Attributes:
        settling: seconds of each iteration that it took to settle layout and chunks, from the start.
    """

    def __init__(self, work: Work, way: Way, world: Communicator, device: torch.device) -> None:
        together = world.size > 1 and not way.apart
        source = solver_source(work.net, work.size, work.batch * (world.size if together else 1))
        apply_set(source.param, [f"engine: {work.engine} {way.parallel if together else ''}"])
        self.world = world
        self.solver = Solver(source, TrainOptions(device), world=world if together else None)
        batch = random_batch(work.net, Images(work.size, work.batch), seed=world.rank)
        self._inputs = fed(self.solver.net.graph, *(tensor.to(device) for tensor in batch))
        self.settling: list[float] = []
        while not self.solver.runtime.tuner.settled:
            self.settling += self.step(1)
        self._warm_up = work.warm_up

    def step(self, iterations: int) -> list[float]:
        """Train; seconds of each iteration."""
        marks = [time.perf_counter()]
        for _ in range(iterations):
            self.solver.runtime.nets.train.operator.feed(
                self._inputs
            )  # anew, since other chunks come with other segments
            self.solver.step(1)
            marks.append(time.perf_counter())
        synchronize(self.solver.runtime.nets.train.operator.device)
        marks[-1] = time.perf_counter()
        return [after - before for before, after in itertools.pairwise(marks)]

    def turn(self, way: Way, iterations: int) -> dict[str, Any]:
        """Train in its ``way``; seconds of each iteration, and of each rank's phases. A collective call."""
        if way.lengths:
            self.solver.runtime.tuner.chunks.use(way.lengths)
        self.world.Barrier()
        self.step(self._warm_up)
        self._warm_up = AGAIN
        events, device = self.solver.runtime.events, self.solver.runtime.nets.train.operator.device
        with events.into(Totals()) as totals:
            seconds = self.step(iterations)
            if device.type != "cpu":
                # The phases of a device that goes on by itself show only if it is waited for, which takes time.
                totals.take()
                events.before_end = partial(finish, device)
                self.step(iterations)
                events.before_end = None
        phases = {name: total / iterations for name, total in phase_seconds(totals.take()).items()}
        return {"seconds": seconds, "ranks": self.world.allgather(phases)}


class Report:
    """The fields of a Done."""

    def __init__(self, work: Work) -> None:
        self.turns: dict[str, list[dict[str, Any]]] = {way.name: [] for way in work.ways}
        self.lengths: dict[str, list[int]] = {}
        self.settling: dict[str, list[float]] = {}
        self.trials: dict[str, list[tuple[list[int], float]]] = {}
        self.peak: list[int] = []
        self.engine = ""

    def add(self, way: Way, trainee: Trainee, turn: dict[str, Any]) -> None:
        """A turn is done."""
        chunks = trainee.solver.runtime.tuner.chunks
        self.turns[way.name].append(turn)
        if chunks.lengths:
            self.lengths[way.name] = list(chunks.lengths)
        if trainee.settling:
            self.settling[way.name] = trainee.settling
        if chunks.search:
            self.trials[way.name] = [(list(trial.lengths), trial.seconds) for trial in chunks.search.trials]
        self.engine = pb.SolverParameter.Engine.Name(trainee.solver.runtime.nets.train.operator.engine)


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """A rank's life: the fields of a Done."""
    asked = Work.of(order)
    device = choose_device(None, asked.gpu, *local_ranks(world))
    memory = Memory(device)
    memory.reset()
    trainees: dict[tuple[str, bool], Trainee] = {}
    for way in asked.ways:
        key = way.parallel, way.apart
        trainees[key] = trainees.get(key) or Trainee(asked, way, world, device)
    report = Report(asked)
    for way in in_turn(asked.ways, asked.turns):
        trainee = trainees[way.parallel, way.apart]
        report.add(way, trainee, trainee.turn(way, asked.iterations))
    report.peak = world.allgather(memory.peak)
    if asked.trace and world.rank == 0:
        record(Path(asked.trace), lambda: trainee.step(1), device)
    elif asked.trace:
        trainee.step(TRACED)
    for trainee in trainees.values():
        trainee.solver.close()
    return vars(report)
