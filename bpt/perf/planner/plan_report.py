"""The result of ``bpt plan``, for its tables and its figure: layers on devices, and the forecast of an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bpt.config.precision import Precision
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.graph.transfers import Transfer
from bpt.parallel.pipeline.pipeline_clock import Clock
from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.problem import Problem
from bpt.parallel.pipeline.simulation import PipelineTrace


@dataclass(frozen=True)
class PlacementForecast:
    """Layers on devices, and the forecast of an iteration.

    Attributes:
        segments: runs of layers on one stage, in the order of the net; neighbours are on different stages.
        stages: the stage of each segment.
        partitions: the number of partitions that the allocator placed on each stage.
        transfers: the blobs that travel between stages.
        trace: the simulated iterations: one or, with DELAYED, several from the start of a run.
        seconds: the time of an iteration; with DELAYED, when the pipeline is full.
        busy: seconds of an iteration in which each stage computes.
        parameters: bytes of each stage's parameters, gradients and history, including stashed copies.
        activations: bytes of each stage's blobs that are in memory at the same time.
    """

    segments: tuple[Segment, ...]
    stages: tuple[int, ...]
    partitions: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    trace: PipelineTrace
    seconds: float
    busy: tuple[float, ...]
    parameters: tuple[float, ...]
    activations: tuple[float, ...]

    @property
    def memory(self) -> tuple[float, ...]:
        """Bytes of memory that each stage takes."""
        return tuple(sum(sizes) for sizes in zip(self.parameters, self.activations, strict=True))

    @property
    def loads(self) -> tuple[float, ...]:
        """The fraction of an iteration in which each stage computes."""
        return tuple(busy / self.seconds if self.seconds else 0.0 for busy in self.busy)

    @property
    def bubble(self) -> float:
        """The fraction of all stages' time in which they do not compute."""
        return 1 - sum(self.loads) / len(self.loads)


@dataclass(frozen=True)
class BestSingleDevice:
    """The fastest device with the whole net.

    Attributes:
        device: its number.
        seconds: the time of an iteration.
        fits: whether its memory is large enough.
    """

    device: int
    seconds: float
    fits: bool


@dataclass(frozen=True)
class PlacementPlan:
    """A placement, and others for comparison.

    Attributes:
        graph: the training net.
        problem: the problem that the allocator solved.
        allocator, schedule: their names in the schema.
        batch: the samples of a pass.
        passes: the passes of an iteration.
        measured: the machine on which the layers' costs were measured; empty: they are counted operations.
        described: whether a file describes devices and links; otherwise they are equal, on links of 10 Gbit/s.
        chosen: the placement of the allocator.
        even: the placement of BLOCK for equal devices, forecast on the real ones.
        alone: the net on the fastest device, without a pipeline.
        block: the placement of BLOCK, if another allocator was chosen and BLOCK finds one.
        convergence: (generation, best objective) of GABRA; empty for other allocators.
        objective: the objective, in words.
        remarks: settings that have no effect, in words.
    """

    graph: LayerGraph
    problem: Problem
    precision: Precision
    allocator: str
    schedule: str
    batch: int
    passes: int
    measured: str
    described: bool
    chosen: PlacementForecast
    even: PlacementForecast
    alone: BestSingleDevice
    block: PlacementForecast | None = None
    convergence: Sequence[tuple[int, float]] = ()
    objective: str = ""
    remarks: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The net and its pipeline in one line."""
        parts = f", {self.problem.micro_batches} micro-batches" if self.problem.micro_batches > 1 else ""
        devices = len(self.problem.devices)
        return (
            f"{self.graph.name or 'the net'} on {devices} device{'s' * (devices != 1)}: {self.allocator}, "
            f"{self.schedule}{parts}"
        )


def milliseconds(seconds: float) -> str:
    """Return milliseconds as text with at least four digits."""
    return f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def forecast_placement(clock: Clock, starts: Sequence[int], stages: Sequence[int]) -> PlacementForecast:
    """Return the forecast of a placement.

    Args:
        starts: the first layer of each partition.
        stages: the stage of each partition.

    Raises:
        PrototxtError: the schedule cannot run stages in this order.
    """
    run = clock.run(starts, stages)
    own, depth = run.pipeline.stages, run.pipeline.depth
    busy = [run.times.update(stage) for stage in range(depth)]
    for segment, stage in enumerate(own):
        busy[stage] += run.pipeline.micros * (run.times.forward(stage, segment) + run.times.backward(stage, segment))
    parameters, activations = _memory(clock.problem, starts, stages)
    return PlacementForecast(
        run.segments, own, tuple(list(stages).count(stage) for stage in range(depth)), run.flows, run.trace,
        run.seconds, tuple(busy), parameters, activations,
    )  # fmt: skip


def _memory(
    problem: Problem, starts: Sequence[int], stages: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the bytes of parameters and of blobs of each stage, as the allocator counts them."""
    loads = Loads(problem, starts)
    genes = np.array([stages], dtype=np.int64)
    return tuple(loads.weights(genes)[0].tolist()), tuple(loads.blobs(genes)[0].tolist())
