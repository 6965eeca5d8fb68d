"""Measures the ranks of a job as a cluster for forecasts: their speeds, their memory, and their links."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from statistics import fmean, median

import numpy as np
import torch

from bpt.config.plan.run_plan import RunPlan
from bpt.engine.instructions import Wait
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.parallel.balance.divisible_batches import divisible_batch, is_dividable
from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.speeds.cluster_from_measurements import MeasuredRank, Sums, cluster_of
from bpt.perf.speeds.coding import with_coding
from bpt.perf.speeds.ping_pong import measure
from bpt.perf.speeds.step_benchmark import StepBenchmark
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.cores import allowed_cpus, cpu_time
from bpt.system.comm.ring_reduction import ring_allreduce
from bpt.system.device.memory_use import available_memory, obtainable_memory

SECONDS = 2.0  # time for one share
_FEWEST, _MOST, _EACH = 1, 4, 4  # smallest and largest number of rounds, and iterations of each, after two warm-ups
_PARTS = 1, 2, 4  # divisors of the even share that are timed: shares and micro-batches may be as small
_BUSY = 4  # short sums during an iteration
_SUMMING = 0.5, 8  # long sums during an iteration: the part of it that they should take, and the largest number
SEGMENTS, _PIECEWISE = 24, 3  # largest number of segments, and of iterations, that measure borders
SHORT = 40  # bytes of a message that measures latency
LONG = 2**16, 2**25  # limits of a message that measures bandwidth: bytes of all gradients, but not more
_OF_LONG = 0.25  # than the slowest link carries in this many seconds
_LINKS = 2.0  # seconds for all links; a shorter time would measure only bursts, which some links carry faster


def measured_cluster(plan: RunPlan, graph: LayerGraph, device: torch.device, world: Communicator) -> Cluster:
    """Measure iterations of all ranks at the same time, their links, and the plan's codec; a collective call.

    Iterations are timed with an even share of the batch and with parts of it.

    Raises:
        PrototxtError: the net has no layer that makes batches.
    """
    hosts = world.allgather(world.host)
    links = measure(world, hosts, _LINKS)
    slowest = min((link.bandwidth for link in links.links), default=0.0)
    gradients = 4 * sum(count(param.shape) for param in graph.learnable)
    summing = _Summing(world, int(np.clip(min(gradients, _OF_LONG * slowest), *LONG)))
    try:
        speeds = world.allgather(_speed_here(plan, graph, device, world, summing))
    finally:
        summing.close()
    cluster = cluster_of(hosts, speeds, links, device.type == "cuda")
    return with_coding(cluster, plan, graph, world)


def _speed_here(
    plan: RunPlan, graph: LayerGraph, device: torch.device, world: Communicator, summing: _Summing
) -> MeasuredRank:
    batch = divisible_batch(plan, graph)
    here = world.host, str(device) if device.type == "cuda" else ""
    of_ranks = world.allgather((*here, allowed_cpus()))
    on_device = sum((host, name) == here for host, name, _ in of_ranks)
    cpus = frozenset[int]().union(*(own for host, _, own in of_ranks if host == here[0]))  # ranks may be bound
    room = (obtainable_memory(device) if device.type == "cuda" else available_memory()) / on_device
    sizes = [-(-batch // (part * world.size)) for part in _PARTS] if is_dividable(graph) else [batch]
    work = StepBenchmark(
        graph,
        plan.training_only(),
        device,
        ranks=world.size,
        on_device=on_device,
        agree=lambda seconds: float(max(world.allgather(seconds))),
    )
    times: dict[int, float] = {}
    updates: list[float] = []
    course: list[float] = []
    borders: dict[int, float] = {}
    try:
        layout = MemoryFormatChoice(plan.engine)
        for size in dict.fromkeys(sizes):
            world.Barrier()
            work.resize(size)
            work.settle(layout)
            found, update = _time_iterations(work, summing, world)
            whole = median(found)
            # On a busy machine, an interrupted update may take longer than the median iteration.
            times[size] = max(whole - update, whole / 10) / max(plan.optim.iter_size, 1)
            updates.append(update)
            course += [seconds / whole for seconds in found]
            if size in (sizes[0], sizes[-1]):
                borders[size] = _border(work, whole, summing, world) / max(plan.optim.iter_size, 1)
    finally:
        work.close()
    cores = int(min(len(cpus), cpu_time())) // max(torch.get_num_threads(), 1)
    return MeasuredRank(
        times, max(cores, 1), room, fmean(updates), borders, course, median(summing.interference), summing.seconds
    )


class _Summing:
    """Sums over all ranks after iterations, and during some; as in training, a separate thread makes them.

    Args:
        nbytes: the bytes of a long sum.

    Attributes:
        seconds: the seconds of the sums.
        interference: the interference in each round (see MeasuredRank).
    """

    def __init__(self, world: Communicator, nbytes: int) -> None:
        self._world = world
        self._thread = CommThread(world.Dup())
        short = np.zeros(SHORT // np.dtype(np.float32).itemsize, np.float32)
        long = np.zeros(nbytes // np.dtype(np.float32).itemsize, np.float32)
        self.seconds = Sums(nbytes=long.nbytes)
        self.interference: list[float] = []
        comm = self._thread.comm
        self._short, self._long = short, long
        self._calls: list[tuple[Callable[[], None], list[float]]] = [
            (lambda: comm.Allreduce(short), self.seconds.short),
            (lambda: comm.Allreduce(long), self.seconds.long),
            (lambda: ring_allreduce(comm, long), self.seconds.ring),
        ]

    def run(self, work: StepBenchmark) -> tuple[list[float], float]:
        """Run an iteration before one sum of each kind, and other iterations during sums.

        Returns:
            The seconds of the iterations without sums, and the median seconds of their updates.
        """
        found, updates = [], []
        for call, seconds in self._calls:
            found.append(work.run())
            updates.append(work.updating)
            _note(partial(self._by_thread, call), seconds)
        short = partial(self._thread.comm.Allreduce, self._short)
        self._thread.submit(partial(_note_mean, short, self.seconds.busy, _BUSY), Wait())
        work.run()
        self._thread.wait()
        self.interference.append(self._interference(work, median(found)))
        return found, median(updates)

    def _interference(self, work: StepBenchmark, alone: float) -> float:
        """Return the seconds by which an iteration exceeds ``alone`` for each byte that is summed during it."""
        if self._world.size == 1:
            return 0.0
        part, most = _SUMMING
        number = self._world.bcast(int(np.clip(part * alone / self.seconds.ring[-1], 1, most)))
        long = partial(ring_allreduce, self._thread.comm, self._long)
        self._thread.submit(partial(_note, long, self.seconds.busy_ring, number), Wait())
        disturbed = work.run()
        self._thread.wait()
        under_way = min(1.0, disturbed / math.fsum(self.seconds.busy_ring[-number:]))
        longer: float = max(0.0, disturbed - alone) / (under_way * number * self._long.nbytes)
        return longer

    def sum_one(self) -> None:
        """Begin a short sum without waiting for its end; ``wait`` waits."""
        self._thread.submit(lambda: self._thread.comm.Allreduce(self._short), Wait())

    def wait(self) -> None:
        """Wait for the end of all sums."""
        self._thread.wait()

    def _by_thread(self, call: Callable[[], None]) -> None:
        self._thread.submit(call, Wait())
        self._thread.wait()

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def _note(call: Callable[[], None], seconds: list[float], number: int = 1) -> None:
    """Call ``call`` ``number`` times, and append the seconds of each call to ``seconds``."""
    for _ in range(number):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)


def _note_mean(call: Callable[[], None], seconds: list[float], number: int) -> None:
    """Call ``call`` ``number`` times, and append the mean seconds to ``seconds``."""
    each: list[float] = []
    _note(call, each, number)
    seconds.append(fmean(each))


def _time_iterations(work: StepBenchmark, summing: _Summing, world: Communicator) -> tuple[list[float], float]:
    """Return the seconds of iterations, and the median of their updates; a collective call."""
    work.run()
    longest = max(world.allgather(work.run()))
    number = min(max(int(SECONDS / longest / _EACH), _FEWEST), _MOST)
    found, updates = zip(*(summing.run(work) for _ in range(number)), strict=True)
    return list(chain.from_iterable(found)), median(updates)


def _border(work: StepBenchmark, whole: float, summing: _Summing, world: Communicator) -> float:
    """Return the seconds that each segment after the first adds to an iteration; a collective call.

    A short sum begins after each segment, because even few bytes take cores from computing.

    Args:
        whole: the seconds of an iteration in one segment.
    """
    segments = work.cut(SEGMENTS)
    if segments == 1:
        return 0.0
    work.run()
    found = []
    for _ in range(_PIECEWISE):
        world.Barrier()
        found.append(work.run(behind=summing.sum_one))
        summing.wait()
    work.cut(1)
    return max(0.0, (median(found) - whole) / (segments - 1))
