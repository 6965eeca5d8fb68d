"""The tables of ``bpt time --solver`` for the inner layer: LIBRARY against TASK_DAG, and the work of the threads."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bpt.base.log import columns, log_results
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.task_dag import TaskDagCompute
from bpt.parallel.task_dag.task_dag import Timeline
from bpt.perf.timing.layer_times import RepetitionTimes
from bpt.system.events.totals import Totals, phase_seconds
from bpt.train.runtime.runtime import Runtime

LOG = logging.getLogger("bpt")

LIBRARY, TASK_DAG = pb.InnerParameter.LIBRARY, pb.InnerParameter.TASK_DAG
DIRECTIONS = ("forward", "backward")
TURNS = 10  # rounds that time both engines, if there are enough iterations
SMALL = 0.02  # fraction of the critical path below which tasks share a line


@dataclass(frozen=True)
class Pass:
    """One direction of a pass by tasks: the DAGs of all segments, one after the other."""

    timelines: tuple[Timeline, ...]

    @property
    def tasks(self) -> int:
        return sum(len(timeline.dag) for timeline in self.timelines)

    @property
    def seconds(self) -> float:
        return sum(timeline.seconds for timeline in self.timelines)

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds in which each thread has run tasks."""
        return tuple(map(sum, zip(*(timeline.busy for timeline in self.timelines), strict=True)))

    @property
    def balance(self) -> float:
        """Thread balance (see Timeline)."""
        return statistics.fmean(self.busy) / max(self.busy) if max(self.busy) else 1.0

    @property
    def waiting(self) -> float:
        """Mean seconds of a thread without tasks."""
        return self.seconds - statistics.fmean(self.busy)

    @property
    def path(self) -> list[tuple[str, float]]:
        """The tasks on the critical path, each with its seconds."""
        path = []
        for timeline in self.timelines:
            took = {event.task: event.end - event.start for event in timeline.events}
            path += [(timeline.dag.tasks[index].name, took[index]) for index in timeline.critical_path[1]]
        return path


@dataclass
class Engines:
    """Seconds of forward and of backward for each engine and iteration, and the passes of TASK_DAG by direction."""

    seconds: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: {LIBRARY: [], TASK_DAG: []})
    passes: dict[str, list[Pass]] = field(default_factory=lambda: {direction: [] for direction in DIRECTIONS})


def log_inner_times(runtime: Runtime, iterations: int) -> None:
    """Train by LIBRARY and by TASK_DAG in turn, and log the times of both; a collective call.

    It does nothing unless ``inner_param`` asks for TASK_DAG or AUTO.
    """
    compute = runtime.nets.train.operator.compute
    if not isinstance(compute, TaskDagCompute):
        return
    runtime.settle()
    chosen = compute.inner
    engines = _measure(runtime, compute, iterations)
    compute.inner = chosen
    if chosen == LIBRARY:
        compute.close()
    threads = f"{compute.threads} thread{'s' * (compute.threads != 1)}"
    each = f"{iterations} iteration{'s' * (iterations != 1)}"
    is_library = not any(each.timelines for each in engines.passes["forward"])
    log_results(LOG, [f"Inner layer: both engines on {threads} in turn, {each} each:"])
    log_results(LOG, side_by_side(engines.seconds, is_library=is_library))
    log_results(LOG, task_tables(engines.passes))


def _measure(runtime: Runtime, compute: TaskDagCompute, iterations: int) -> Engines:
    engines = Engines()
    turns = min(TURNS, iterations)
    for turn in range(turns):
        own = iterations * (turn + 1) // turns - iterations * turn // turns
        for compute.inner in (LIBRARY, TASK_DAG) if turn % 2 == 0 else (TASK_DAG, LIBRARY):
            runtime.iterate()  # not timed: it starts threads and allocates memory
            for _ in range(own):
                with runtime.events.into(Totals()) as totals:
                    runtime.iterate()
                phases = phase_seconds(totals.take())
                engines.seconds[compute.inner].append((phases["forward"], phases["backward"]))
                if compute.inner == TASK_DAG:
                    for direction, passes in engines.passes.items():
                        passes.append(pass_of(compute.timelines, direction))
    return engines


def pass_of(timelines: Mapping[tuple[int, str], Timeline], direction: str) -> Pass:
    """Return the last pass in a ``direction`` from the segments' timelines."""
    return Pass(tuple(timeline for (_, other), timeline in sorted(timelines.items()) if other == direction))


def side_by_side(seconds: Mapping[int, Sequence[tuple[float, float]]], is_library: bool = False) -> Iterator[str]:
    """Yield a line for each engine, with median ± half the distance of the quartiles, and a line of their ratios.

    Args:
        seconds: (forward, backward) of each iteration, by engine.
        is_library: whether TASK_DAG has run the net as LIBRARY does, so that a ratio would be meaningless.
    """
    rows: list[tuple[str, ...]] = [("", "forward ms", "backward ms", "both ms")]
    medians = []
    for engine, laps in seconds.items():
        times = [RepetitionTimes(samples) for samples in (*zip(*laps, strict=True), tuple(map(sum, laps)))]
        cells = (f"{each.median * 1e3:.3f} ± {each.spread * 1e3:.3f}" for each in times)
        rows.append((pb.InnerParameter.Engine.Name(engine), *cells))
        medians.append([each.median for each in times])
    library, dag = medians
    if not is_library:
        ratios = (f"{ours / theirs:.3f}" for ours, theirs in zip(dag, library, strict=True))
        rows.append(("TASK_DAG / LIBRARY", *ratios))
    yield from columns(rows, left=1)


def task_tables(passes: Mapping[str, Sequence[Pass]]) -> Iterator[str]:
    """Yield the work of TASK_DAG's threads, and the critical path of the pass with the median time."""
    if not any(each.timelines for each in passes["forward"]):
        yield "TASK_DAG finds no tasks to run in parallel here, so it runs the net as LIBRARY does."
        return
    yield f"TASK_DAG, median of {len(passes['forward'])} passes:"
    yield from columns(
        [
            ("", "tasks", "ms", "critical path ms", "least busy ms", "most busy ms", "balance", "waiting ms"),
            *((direction, *_medians(each)) for direction, each in passes.items()),
        ],
        left=1,
    )
    yield "critical path: the lower bound for any number of threads. busy: time in tasks of the least and of the most"
    yield "busy thread. balance: mean busy time / most busy time. waiting: mean time of a thread without tasks."
    for direction, each in passes.items():
        yield from _path(direction, sorted(each, key=lambda one: one.seconds)[len(each) // 2])


def _medians(passes: Sequence[Pass]) -> Iterator[str]:
    yield str(passes[0].tasks)
    for seconds in (
        [each.seconds for each in passes],
        [sum(took for _, took in each.path) for each in passes],
        [min(each.busy) for each in passes],
        [max(each.busy) for each in passes],
    ):
        yield f"{statistics.median(seconds) * 1e3:.3f}"
    yield f"{statistics.median(each.balance for each in passes):.3f}"
    yield f"{statistics.median(each.waiting for each in passes) * 1e3:.3f}"


def _path(direction: str, median: Pass) -> Iterator[str]:
    path = median.path
    length = sum(seconds for _, seconds in path)
    yield f"Critical path of {direction}, {length * 1e3:.3f} of {median.seconds * 1e3:.3f} ms:"
    small = [seconds for _, seconds in path if seconds < SMALL * length]
    shown = [(name, seconds) for name, seconds in path if seconds >= SMALL * length]
    if small:
        shown.append((f"{len(small)} others", sum(small)))
    rows = [("task", "ms", "part")]
    rows += [(name, f"{seconds * 1e3:.3f}", f"{seconds / length:.1%}") for name, seconds in shown]
    yield from columns(rows, left=1)
