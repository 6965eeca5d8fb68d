"""What ``bpt plan`` has found, for its tables and its figure: layers on devices, and how an iteration goes then."""

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
    """Layers on devices, and how an iteration goes then.

    Attributes:
        segments: runs of layers on one stage, in order of the net; neighbours are on different stages.
        stages: of each segment.
        partitions: of each stage, how many it runs; the allocator placed these.
        transfers: what travels between stages.
        trace: the simulated iterations: one or, of DELAYED, several from the start of a run on.
        seconds: of an iteration; of DELAYED, once the pipeline is full.
        busy: of each stage, seconds of an iteration in which it computes.
        parameters: of each stage, bytes of its parameters and of what training keeps for them, copies included.
        activations: of each stage, bytes of blobs that are alive at once.
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
    def held(self) -> tuple[float, ...]:
        """Of each stage, bytes of its memory that are taken."""
        return tuple(sum(sizes) for sizes in zip(self.parameters, self.activations, strict=True))

    @property
    def loads(self) -> tuple[float, ...]:
        """Of each stage, the part of an iteration in which it computes."""
        return tuple(busy / self.seconds if self.seconds else 0.0 for busy in self.busy)

    @property
    def bubble(self) -> float:
        """The part of all stages' time in which they do not compute."""
        return 1 - sum(self.loads) / len(self.loads)


@dataclass(frozen=True)
class BestSingleDevice:
    """The fastest of the devices with the whole net.

    Attributes:
        device: its number.
        seconds: of an iteration.
        fits: whether its memory is large enough.
    """

    device: int
    seconds: float
    fits: bool


@dataclass(frozen=True)
class PlacementPlan:
    """A placement and what it is compared with.

    Attributes:
        graph: the training net.
        problem: what a placement was sought for.
        allocator, schedule: their names in the schema.
        batch: samples of a pass.
        passes: of an iteration.
        measured: where the layers' costs were measured, in words; empty: they are counted operations.
        described: whether devices and links are described; otherwise they are alike, on links of 10 Gbit/s.
        chosen: what the allocator found.
        even: what BLOCK finds if all devices were alike, on the real ones.
        alone: without a pipeline.
        block: what BLOCK finds, if another allocator was asked and it finds anything.
        convergence: of GABRA, (generation, the best one's objective); empty for other allocators.
        objective: what ``convergence`` shows, in words.
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
        """The net and how it is run, in a line."""
        parts = f", {self.problem.micro_batches} micro-batches" if self.problem.micro_batches > 1 else ""
        devices = len(self.problem.devices)
        return (
            f"{self.graph.name or 'the net'} on {devices} device{'s' * (devices != 1)}: {self.allocator}, "
            f"{self.schedule}{parts}"
        )


def milliseconds(seconds: float) -> str:
    """In milliseconds, four digits at least."""
    return f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def outlook(clock: Clock, starts: Sequence[int], stages: Sequence[int]) -> PlacementForecast:
    """Return what becomes of a placement.

    Args:
        starts: the first layer of each partition, and
        stages: its stage.

    Raises:
        PrototxtError: the schedule cannot run stages that lie like that.
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
    """Return bytes of parameters, and of blobs, of each stage, as the allocator counts them."""
    loads = Loads(problem, starts)
    genes = np.array([stages], dtype=np.int64)
    return tuple(loads.weights(genes)[0].tolist()), tuple(loads.blobs(genes)[0].tolist())
