"""Runs a net in one process and on stages that are threads, for whole tensors to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.engine.compute import LibraryCompute, TwoPartCompute
from bpt.engine.operator import Operator
from bpt.engine.pipeline_batches import PipelineBatches
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import cut, per_layer
from bpt.graph.stages import part_of
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.pipeline import Pipeline, instructions
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of

SEED = 3


@dataclass
class Result:
    """What is left of some passes; blobs by edge, gradients by Param.index."""

    loss: float = 0.0
    values: dict[int, Tensor] = field(default_factory=dict)
    diffs: dict[int, Tensor] = field(default_factory=dict)
    grads: dict[int, Tensor] = field(default_factory=dict)
    ends: dict[int, Tensor] = field(default_factory=dict)  # the net's outputs and losses, of the last pass


Look = Callable[[Operator, object], object]


@dataclass(frozen=True)
class Job:
    """Passes of a net, layer by layer, on stages.

    Attributes:
        text: of the net.
        stages: of each layer; an edge between two stages, and between two layers of one, is a border of segments.
    """

    text: str
    stages: Sequence[int]
    rule: int = pb.PipelineParameter.GPIPE
    micro_batches: int = 1
    passes: int = 1
    engine: int = pb.SolverParameter.CONTIGUOUS

    @property
    def graph(self) -> LayerGraph:
        return graph_of(self.text)

    def alone(self) -> Result:
        """One process, a segment a layer; blobs of the last pass."""
        graph = self.graph
        operator = Operator(Net(graph, PassContext(SEED)), per_layer(graph))
        loss = 0.0
        for number in range(self.passes):
            operator.reset()
            operator.begin_pass(0, number)
            for index in range(len(graph)):
                operator.forward(index)
            for index in reversed(range(len(graph))):
                operator.backward(index)
            loss += operator.loss().item()
        ends = {e.index: operator.values[e.index] for e in (*graph.outputs, *graph.losses)}
        return Result(loss, dict(operator.values), dict(operator.diffs), grads_of(operator.net), ends)

    def staged(self, look: Look = lambda operator, instruction: None) -> Result:
        """All stages, and all micro-batches of the last pass put together.

        Args:
            look: called on each stage after each instruction.
        """
        results = run_ranks(max(self.stages) + 1, lambda comm: self._stage(comm, look), timeout=120)
        whole = Result(sum(result.loss for result in results))
        for kind in ("values", "diffs", "grads", "ends"):
            for result in results:
                own = getattr(result, kind)
                assert kind not in ("grads", "ends") or not own.keys() & getattr(whole, kind).keys()
                getattr(whole, kind).update(own)
        return whole

    def _stage(self, comm: Communicator, look: Look) -> Result:
        graph = self.graph
        net = Net(graph, PassContext(SEED), part=part_of(graph, self.stages, comm.rank))
        segments = cut(graph, range(len(graph)), sources_apart=True)
        links = StageLinks(comm)
        stage = Stage(links, self.stages, lambda edge: torch.float32)
        compute = TwoPartCompute if self.rule == pb.PipelineParameter.ZERO_BUBBLE else LibraryCompute
        splits = (self.micro_batches,)
        operator = Operator(net, segments, "cpu", self.engine, compute=compute, stage=stage, splits=splits)
        batches = batches_of(operator)
        pipeline = Pipeline(stage.of_segments, stage.transfers, self.passes, self.micro_batches)
        seen: dict[str, dict[int, dict[int, Tensor]]] = {"values": {}, "diffs": {}}
        batches.begin(0, pipeline.micros)
        loss = 0.0
        for instruction in instructions(self.rule, pipeline, comm.rank):
            match instruction:
                case do.LoadBatch(micro):
                    batches.load_batch(instruction)
                    for part in range(micro, micro + self.micro_batches):
                        _note(seen["values"], batches.under_way.states[part].values, part)
                case do.Forward(segment, int(micro)):
                    operator.forward(segment, micro)
                    loss += operator.losses(segment, micro).item()
                    _note(seen["values"], batches.under_way.states[micro].values, micro)
                case do.Backward(segment, int(micro)) | do.BackwardInputs(segment, int(micro)):
                    operator.backward(segment, micro)
                    _note(seen["diffs"], batches.under_way.states[micro].diffs, micro)
                case do.BackwardWeights(segment, int(micro)):
                    operator.backward_weights(segment, micro)
                case do.Send():
                    batches.send(instruction)
                case do.Recv(_, micro, diff):
                    batches.recv(instruction)
                    if not diff:
                        _note(seen["values"], batches.under_way.states[micro].values, micro)
                case do.Wait():
                    batches.finish()
            look(operator, instruction)
        links.close()
        first = (self.passes - 1) * self.micro_batches
        last = range(first, first + self.micro_batches)
        values, diffs = (
            {edge: _joined(graph, edge, [parts[micro] for micro in last]) for edge, parts in seen[kind].items()}
            for kind in ("values", "diffs")
        )
        return Result(loss, values, diffs, grads_of(net), dict(operator.values))


def batches_of(operator: Operator) -> PipelineBatches:
    assert isinstance(operator.batches, PipelineBatches)
    return operator.batches


def grads_of(net: Net) -> dict[int, Tensor]:
    grads = {param.index: net.value(param).grad for param in net.local_params}
    return {index: grad for index, grad in grads.items() if grad is not None}


def _note(seen: dict[int, dict[int, Tensor]], blobs: Mapping[int, Tensor], micro: int) -> None:
    for edge, blob in blobs.items():
        seen.setdefault(edge, {}).setdefault(micro, blob.clone())


def _joined(graph: LayerGraph, edge: int, parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if graph.edges[edge].shape else torch.stack(parts).sum(0)


def assert_equal(ours: Result, theirs: Result, *kinds: str) -> None:
    """Whole tensors, up to 1e-6 of the largest element (of 1, if that is smaller)."""
    assert abs(ours.loss - theirs.loss) <= 1e-5 * max(1.0, abs(theirs.loss)), (ours.loss, theirs.loss)
    for kind in kinds or ("values", "diffs", "grads", "ends"):
        found, expected = getattr(ours, kind), getattr(theirs, kind)
        assert set(found) == set(expected), kind
        for key, value in found.items():
            assert value.shape == expected[key].shape, (kind, key)
            scale = max(1.0, expected[key].abs().max().item())
            error = (value - expected[key]).abs().max().item()
            assert error <= 1e-6 * scale, f"{kind} {key}: off by {error:.3g}, the largest is {scale:.3g}"
