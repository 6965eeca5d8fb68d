"""A rank of the calibration of ``scripts/bench bptcnn``: what ``bpt simulate`` must know of the test bed.

Rank 0, the server, does nothing while all others train at the same time, as they do in a run. Then messages go to one
of them after the other and back, and the server merges weights, with pauses in between: a host with a small share of
the processor does a short piece of work at once, but not one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from bpt.comm.base import Buffer, Communicator
from bpt.comm.cores import power
from bpt.layers.base import batch_of
from bpt.metrics import LocalAccuracy
from bpt.plan.resolve import resolve
from bpt.plan.spec import ParallelSpec
from bpt.proto.sources import read_solver
from bpt.schedule.outer.instructions import Merge
from bpt.schedule.weight_update import Update
from bpt.server.flat_weights import FlatWeights
from bpt.server.global_weights import GlobalWeights
from bpt.solver.solver import Solver

WARM_UP = 20  # iterations
REPEATS, PAUSE = 30, 0.03  # of messages and merges; seconds
SERVER, TAG = 0, 1


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any] | None:
    """A rank: what is to be known, on the server.

    Args:
        order: ``solver``: its text; ``seconds`` to train for.
    """
    plan = resolve(read_solver(order["solver"])).training_only()
    with Solver(replace(plan, parallel_param=ParallelSpec())) as solver:  # each by itself
        flat, batch = FlatWeights(solver.net), batch_of(solver.net.graph)
        weights = flat.pack()
        seen: dict[str, Any] = {"host": world.host, "frequency": power()}
        if world.rank != SERVER:
            with LocalAccuracy(solver.net):
                seen |= speed(lambda: solver.step(1), batch, order["seconds"], world)
        else:
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


def speed(step: Callable[[], object], batch: int, seconds: float, world: Communicator) -> dict[str, Any]:
    """Samples a second, and how iterations vary: standard deviation as a part of the mean."""
    first = [timed(step) for _ in range(WARM_UP)]
    world.Barrier()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        times.append(timed(step))
    return {"speed": batch / fmean(times), "noise": stdev(times) / fmean(times), "first": first}


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
    merge = Merge(Update(worker=0, base=0, newest=1, gamma=0.5, accuracy=1.0))
    times = []
    for _ in range(REPEATS):
        held.submit(0, weights.copy())
        time.sleep(PAUSE)
        times.append(timed(lambda: held.merge(merge)))
    return median(times)
