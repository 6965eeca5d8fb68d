"""Staging: the stage of a pipeline that runs each layer, and the order of micro-batches through the stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from bpt.config.plan.replica_layout import Holders
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.stages import stages_by_name


@dataclass(frozen=True)
class Staging:
    """The assignment of a run's layers to the stages of its pipelines.

    Attributes:
        layers: the names of the training net's layers, in order.
        of_layers: the stage of each of them; layers of test nets follow them.
        rule: the schedule, a ``pb.PipelineParameter.Schedule``.
        cuts: the numbers of micro-batches of a rank's share in training. Several numbers cut in turn, as PassContext
            describes.
        gathers: the layers of the training net that run once for all micro-batches of a pass.
        of_kinds: the stage of each layer in each kind of replica (see ReplicaLayout); empty: there is one kind.
    """

    layers: tuple[str, ...]
    of_layers: tuple[int, ...]
    rule: int
    cuts: tuple[int, ...]
    gathers: frozenset[int] = frozenset()
    of_kinds: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def alone(cls, graph: LayerGraph, cuts: tuple[int, ...], gathers: frozenset[int] = frozenset()) -> Staging:
        """Return the staging of one process that runs all layers of ``graph``, micro-batch by micro-batch."""
        names = tuple(node.name for node in graph.nodes)
        rule = pb.PipelineParameter.GPIPE if gathers else pb.PipelineParameter.SEQUENTIAL
        return cls(names, (0,) * len(graph), rule, cuts, gathers)

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a training pass."""
        return math.prod(self.cuts)

    @property
    def path(self) -> tuple[int, ...]:
        """The stages that a batch passes, from the bottom of the net up; a stage may occur several times."""
        return tuple(stage for stage, _ in groupby(self.of_layers))

    def delay(self, stage: int) -> int:
        """Return the iterations from a batch's forward pass to its last backward pass on a stage, under DELAYED."""
        return len(self.path) - 1 - self.path.index(stage)

    def stages(self, graph: LayerGraph) -> tuple[int, ...]:
        """Return the stage of each layer of a net of the run."""
        return self._stages(graph, self.of_layers)

    def holders(self, graph: LayerGraph) -> tuple[Holders, ...]:
        """Return which stages run each layer of a net of the run."""
        return tuple(
            zip(*(self._stages(graph, of_kind) for of_kind in self.of_kinds or (self.of_layers,)), strict=True)
        )

    def _stages(self, graph: LayerGraph, of_layers: tuple[int, ...]) -> tuple[int, ...]:
        if tuple(node.name for node in graph.nodes) == self.layers:
            return of_layers
        return stages_by_name(graph, dict(zip(self.layers, of_layers, strict=True)))

    def __str__(self) -> str:
        rule = pb.PipelineParameter.Schedule.Name(self.rule)
        return f"pipeline {rule}" + (f" of {self.micro_batches} micro-batches" if self.micro_batches > 1 else "")
