"""The stage of a pipeline that runs each layer. A placement decides for the training net; test nets follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.part import Part
from bpt.graph.transfers import is_source


def layer_stages(graph: LayerGraph, starts: Sequence[int], stages: Sequence[int]) -> tuple[int, ...]:
    """Return the stage of each layer of the training net.

    Args:
        graph: the training net.
        starts: the first layer of each partition, ascending from 0.
        stages: the stage of each partition.
    """
    ends = [*starts[1:], len(graph)]
    spans = zip(starts, ends, stages, strict=True)
    return tuple(stage for start, end, stage in spans for _ in range(start, end))


def stages_by_name(graph: LayerGraph, stage_of: Mapping[str, int]) -> tuple[int, ...]:
    """Return the stage of each layer of another net that shares parameters with the training net.

    A layer runs on the stage of the training net's layer with its name (``stage_of``). Any other layer runs where the
    layer runs whose parameters it shares, or where its last bottom is made. A layer without bottoms runs on the stage
    of the layer before it.
    """
    stages: list[int] = []
    for node in graph.nodes:
        stages.append(stage_of.get(node.name, _behind(graph, node, stages)))
    return tuple(stages)


def _behind(graph: LayerGraph, node: LayerNode, stages: Sequence[int]) -> int:
    owners = [graph.params[graph.params[index].owner].layer for index in node.params if graph.params[index].shared]
    if owners:
        return stages[owners[0]]
    makers = [graph.edges[edge].producer for edge in node.bottoms]
    if makers:
        return stages[max(makers)]
    return stages[-1] if stages else 0


def borders(stages: Sequence[object]) -> set[int]:
    """Return the layers at which a run on one stage, or the same stages, begins, with the first.

    Args:
        stages: the stage of each layer, or the stages of each.
    """
    return {layer for layer, stage in enumerate(stages) if not layer or stage != stages[layer - 1]}


def run_again(stages: Sequence[int], rule: int) -> frozenset[int]:
    """Return the layers that run forward again before they run backward, under ``pipeline_param { recompute: true }``.

    These are all, except the last run on one stage where its backward pass follows at once: it would save nothing.

    Args:
        stages: the stage of each layer, or of each segment.
        rule: the schedule, a ``pb.PipelineParameter.Schedule``. Under GPIPE no backward pass follows at once.
    """
    return frozenset(range(len(stages) if rule == pb.PipelineParameter.GPIPE else max(borders(stages))))


def part_of(graph: LayerGraph, stages: Sequence[int], stage: int) -> Part:
    """Return the part of ``stage``: its layers, and on stage 0 all layers without bottoms."""
    own = {node.index for node in graph.nodes if (0 if is_source(node) else stages[node.index]) == stage}
    return Part(frozenset(own))


def inseparable_runs(graph: LayerGraph) -> tuple[tuple[int, int], ...]:
    """Return runs of layers ``[start, end)`` that one stage must run, ascending, without overlaps.

    A Split stays with the layer whose blob it copies, so that a blob is sent directly to each stage that reads it.
    Layers with common parameters stay together, with all layers between them.
    """
    spans = [(graph.edges[node.bottoms[0]].producer, node.index + 1) for node in graph.nodes if node.type == "Split"]
    owners = [(graph.params[param.owner].layer, param.layer) for param in graph.params if param.shared]
    spans += [(min(pair), max(pair) + 1) for pair in owners]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)
