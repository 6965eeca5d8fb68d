"""Measures the times of layers and of whole passes, in separate loops.

For the times of layers, each layer is a segment; for those of passes, the whole net is one. So the times of passes do
not include the timers of layers, nor the access to every blob.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Backward, Forward, LoadBatch
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerNode
from bpt.parallel.pipeline import Pipeline, instructions

WARM_UP = 2  # passes that are not timed: they allocate memory, choose kernels and fill the prefetch queue


@dataclass(frozen=True)
class RepetitionTimes:
    """Seconds of each repetition of a measurement."""

    samples: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles: about half of all repetitions are this close to the median."""
        if len(self.samples) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (third - first) / 2


@dataclass(frozen=True)
class LayerTimes:
    """The times of a layer's forward and backward passes."""

    node: LayerNode
    forward: RepetitionTimes
    backward: RepetitionTimes


@dataclass(frozen=True)
class PassTimes:
    """The times of whole passes; ``update`` is ``None`` if no solver is timed."""

    forward: RepetitionTimes
    backward: RepetitionTimes
    iteration: RepetitionTimes
    update: RepetitionTimes | None


class Stopwatch:
    """A stopwatch on a device; on a GPU it uses events, so that the host does not wait."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[float | torch.cuda.Event] = []

    def mark(self) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def laps(self) -> list[float]:
        """Return the seconds between consecutive marks, and delete the marks."""
        marks, self._marks = self._marks, []
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return [_seconds(a, b) for a, b in itertools.pairwise(marks)]


def _seconds(start: float | torch.cuda.Event, end: float | torch.cuda.Event) -> float:
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(start.elapsed_time(end)) / 1e3
    assert isinstance(start, float) and isinstance(end, float)
    return end - start


def time_layers(operator: Operator, iterations: int) -> list[LayerTimes]:
    """Time each layer's forward and backward over ``iterations`` passes, after a warm-up.

    Args:
        operator: an operator with one segment a layer.
    """
    nodes = operator.net.graph.nodes
    assert len(operator.segments) == len(nodes)
    order = range(len(nodes))
    steps = [*(partial(operator.forward, i) for i in order), *(partial(operator.backward, i) for i in reversed(order))]
    laps = repeat(steps, operator, iterations)
    return [
        LayerTimes(node, RepetitionTimes(laps[node.index]), RepetitionTimes(laps[-1 - node.index])) for node in nodes
    ]


def time_passes(
    operator: Operator,
    iterations: int,
    update: Callable[[], object] | None = None,
    each: Callable[[int, float], object] = lambda number, seconds: None,
) -> PassTimes:
    """Time whole passes of a net, after a warm-up.

    Args:
        operator: an operator with the net as one segment.
        update: the solver's update after backward, which must clear the gradients.
        each: function to call after each pass, outside of the timed part, with its number, from 1, and its seconds.
    """
    assert len(operator.segments) == 1
    steps: list[Callable[[], object]] = [partial(operator.forward, 0), partial(operator.backward, 0)]
    if update is not None:
        steps.append(update)
    laps = repeat(steps, operator, iterations, each)
    totals = tuple(map(sum, zip(*laps, strict=True)))
    return PassTimes(
        RepetitionTimes(laps[0]),
        RepetitionTimes(laps[1]),
        RepetitionTimes(totals),
        RepetitionTimes(laps[2]) if update is not None else None,
    )


def choose_layout(operator: Operator, choice: MemoryFormatChoice, update: Callable[[], object] | None = None) -> None:
    """Choose a memory layout by whole passes in each, as training does; ``operator`` uses it afterwards."""
    operator.engine = choice.engine
    while not choice.settled:
        stopwatch = Stopwatch(operator.device)
        stopwatch.mark()
        operator.batches.begin(0, operator.micro_batches)
        operator.batches.load_batch(LoadBatch(0))
        for step in one_stage(operator):
            run = operator.backward if isinstance(step, Backward) else operator.forward
            run(step.segment, step.micro)
        operator.batches.finish()
        if update is not None:
            update()
        stopwatch.mark()
        choice.record(sum(stopwatch.laps()))
        operator.net.zero_grad(set_to_none=True)
        operator.engine = choice.engine


def one_stage(operator: Operator) -> list[Forward | Backward]:
    """Return the instructions of a pass in micro-batches on a single stage.

    Each micro-batch runs forward and then backward, unless layers gather all of them.
    """
    stages = (0,) * len(operator.segments)
    pipeline = Pipeline(stages, (), 1, operator.micro_batches, gathers=operator.gathers)
    rule = pb.PipelineParameter.GPIPE if operator.gathers else pb.PipelineParameter.SEQUENTIAL
    return [step for step in instructions(rule, pipeline, 0) if isinstance(step, Forward | Backward)]


def repeat(
    steps: Sequence[Callable[[], object]],
    operator: Operator,
    iterations: int,
    each: Callable[[int, float], object] = lambda number, seconds: None,
) -> list[tuple[float, ...]]:
    """Run ``steps`` in ``iterations`` rounds, drop gradients after each round, and return the seconds of all steps."""
    stopwatch = Stopwatch(operator.device)
    rounds = []
    for number in range(1 - WARM_UP, iterations + 1):
        stopwatch.mark()
        for step in steps:
            step()
            stopwatch.mark()
        laps = stopwatch.laps()
        operator.net.zero_grad(set_to_none=True)
        if number >= 1:
            rounds.append(laps)
            each(number, sum(laps))
    return list(zip(*rounds, strict=True))
