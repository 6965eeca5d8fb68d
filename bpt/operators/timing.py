"""Measures how long layers and whole passes take: each by itself, never one timer inside another.

Layers are timed with one segment a layer, whole passes with the net as one segment, in separate loops:
what the per-layer timers cost, and the look into every blob, is not in the times of the passes.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from bpt.graph.layer_graph import Node
from bpt.graph.segments import per_layer
from bpt.net import Net
from bpt.operators.local import LocalOperator

WARM_UP = 2  # passes that are not counted: allocation, kernel choice, filling of the prefetch queue


@dataclass(frozen=True)
class Times:
    """Seconds of each repetition."""

    samples: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles: half of all repetitions lie this near to the median."""
        if len(self.samples) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (third - first) / 2


@dataclass(frozen=True)
class LayerTimes:
    node: Node
    forward: Times
    backward: Times


@dataclass(frozen=True)
class PassTimes:
    """Times of whole passes; ``update`` is ``None`` where no solver is timed."""

    forward: Times
    backward: Times
    iteration: Times
    update: Times | None


class Stopwatch:
    """Marks points in time on a device; on a GPU by events, so that the host need not wait for it."""

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
        """Seconds between consecutive marks; the stopwatch starts anew."""
        marks, self._marks = self._marks, []
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return [_seconds(a, b) for a, b in itertools.pairwise(marks)]


def _seconds(start: float | torch.cuda.Event, end: float | torch.cuda.Event) -> float:
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(start.elapsed_time(end)) / 1e3
    assert isinstance(start, float) and isinstance(end, float)
    return end - start


def time_layers(net: Net, device: torch.device, iterations: int) -> list[LayerTimes]:
    """Time each layer's forward and backward over ``iterations`` passes, after a warm-up."""
    operator = LocalOperator(net, per_layer(net.graph), device)
    order = range(len(operator.segments))
    steps = [*((operator.forward, i) for i in order), *((operator.backward, i) for i in reversed(order))]
    laps = _repeat([partial(run, index) for run, index in steps], device, iterations, net)
    return [
        LayerTimes(node, Times(laps[node.index]), Times(laps[2 * len(order) - 1 - node.index]))
        for node in net.graph.nodes
    ]


def time_passes(
    net: Net, device: torch.device, iterations: int, update: Callable[[], object] | None = None
) -> PassTimes:
    """Time whole passes of the net as one segment, after a warm-up.

    Args:
        update: what a solver does after backward; it must clear the gradients.
    """
    operator = LocalOperator(net, device=device)
    steps: list[Callable[[], object]] = [lambda: operator.forward(0), lambda: operator.backward(0)]
    if update is not None:
        steps.append(update)
    laps = _repeat(steps, device, iterations, net)
    totals = tuple(map(sum, zip(*laps, strict=True)))
    return PassTimes(Times(laps[0]), Times(laps[1]), Times(totals), Times(laps[2]) if update is not None else None)


def _repeat(
    steps: Sequence[Callable[[], object]], device: torch.device, iterations: int, net: Net
) -> list[tuple[float, ...]]:
    """Seconds of each step in each of ``iterations`` rounds."""
    stopwatch = Stopwatch(device)
    rounds = []
    for number in range(WARM_UP + iterations):
        stopwatch.mark()
        for step in steps:
            step()
            stopwatch.mark()
        laps = stopwatch.laps()
        net.zero_grad(set_to_none=True)
        if number >= WARM_UP:
            rounds.append(laps)
    return list(zip(*rounds, strict=True))
