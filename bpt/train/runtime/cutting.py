"""Cuts of a run's nets into segments: between stages, at split layers, and for the exchange of gradients."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment, cut, isolation_cuts, starts_by_chunks, starts_by_size
from bpt.graph.stages import borders
from bpt.graph.staging import Staging
from bpt.parallel.model_parallel import model_parallel

SEGMENT = 2**20  # parameters from which a separate exchange during backward is worthwhile


def segments_of(
    graph: LayerGraph,
    param: ParallelSpec,
    staging: Staging | None = None,
    overlap: bool = False,
    chunks: Sequence[int] = (),
    size: int = SEGMENT,
) -> tuple[Segment, ...]:
    """Return how a net is cut: between stages, at split layers and, to ``overlap`` the exchange, by parameters.

    Args:
        param: has the number of shards.
        staging: the stage of each layer; ``None``: there are no stages.
        chunks: numbers of trained layers of each segment, from the top down, instead of a number of parameters.
        size: number of parameters of a segment.
    """
    scheme, stages = param.fc_param.scheme, staging.stages(graph) if staging else ()
    starts = borders(staging.holders(graph)) if staging else {0}
    starts |= isolation_cuts(graph, gathered(graph, staging))
    if param.num_shards > 1:
        starts |= set(model_parallel.starts(graph, scheme, stages))
    if overlap:
        starts |= set(starts_by_chunks(graph, chunks) if chunks else starts_by_size(graph, size))
        if param.num_shards > 1:
            starts -= model_parallel.inside(graph, scheme, stages)
    return cut(graph, sorted(starts), sources_apart=staging is not None)


def gathered(graph: LayerGraph, staging: Staging | None) -> frozenset[int]:
    """Return the layers of a net that run once for all micro-batches of a pass."""
    return staging.gathers if staging and graph.phase == pb.TRAIN else frozenset()


def last_segments(graph: LayerGraph, segments: Sequence[Segment]) -> dict[int, int]:
    """Return the segment that completes each parameter's gradient, the first that uses it, by Param.index."""
    segment_of = {layer: s.index for s in segments for layer in range(s.start, s.end)}
    first: dict[int, int] = {}
    for param in graph.params:
        segment = segment_of[param.layer]
        first[param.owner] = min(first.get(param.owner, segment), segment)
    return first
