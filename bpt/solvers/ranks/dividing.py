"""Which nets' batches may be divided over ranks, and which must stay whole."""

from __future__ import annotations

from bpt.errors import LayerError
from bpt.graph.layer_graph import LayerGraph, Node
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb


def is_dividable(graph: LayerGraph) -> bool:
    """Whether the samples of a batch (axis 0 of blobs) may be on different ranks."""
    return not any(_reason(graph, node) for node in graph.nodes)


def check_dealt_out(graph: LayerGraph) -> None:
    """Refuse a net whose batches must stay whole, where workers get samples one by one: in the outer layer.

    Raises:
        LayerError: which layer wants it so.
    """
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and LAYERS[node.type].within_batch:
            raise node.spec.error(
                f"{reason}, so its batches must stay as the data set has them, but SGWU, AGWU and ASGD deal samples "
                "out one by one; use exchange: ALLREDUCE with batch_scope: REPLICA"
            )


def check_measurable(graph: LayerGraph) -> None:
    """Refuse to measure a net by batches of several sizes whose batches must stay whole.

    Raises:
        LayerError: which layer wants it so.
    """
    for node in graph.nodes:
        if reason := _reason(graph, node):
            raise node.spec.error(
                f"{reason}, so batches have one size, and there is nothing to balance: no profile is needed"
            )


def check_training(graph: LayerGraph, param: pb.ParallelParameter) -> None:
    """Refuse a net whose batches must stay whole, unless each rank is to train whole ones, as with Caffe's ``-gpu``.

    Raises:
        LayerError: which layer wants it so, and what to set if that helps.
    """
    replicas = param.batch_scope == pb.ParallelParameter.REPLICA
    apart = _apart(param) + ["balance"] * (param.balance != pb.ParallelParameter.UNIFORM)
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and (apart or not replicas or not _may_be_whole(graph, node)):
            settings = [] if replicas else ["set parallel_param { batch_scope: REPLICA }"]
            settings += [f"leave out {' and '.join(apart)}"] if apart else []
            remedy = f", or {' and '.join(settings)}: then each rank trains whole batches"
            raise _error(node, reason, remedy if _may_be_whole(graph, node) else "")


def check_test(graph: LayerGraph, param: pb.ParallelParameter) -> None:
    """Refuse a test net whose batches must stay whole, unless each rank can test all of them.

    Raises:
        LayerError: which layer wants it so, and what to leave out if that helps.
    """
    apart = _apart(param)
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and (apart or not _may_be_whole(graph, node)):
            remedy = f", or leave out {' and '.join(apart)}: then each rank tests whole batches"
            raise _error(node, reason, remedy if _may_be_whole(graph, node) else "")


def _apart(param: pb.ParallelParameter) -> list[str]:
    """The settings by which no rank has a net of its own."""
    return ["num_stages"] * (param.num_stages > 1) + ["num_shards"] * (param.num_shards > 1)


def _reason(graph: LayerGraph, node: Node) -> str:
    return LAYERS[node.type].mixes_samples(node.spec, [graph.edges[edge].shape for edge in node.bottoms])


def _may_be_whole(graph: LayerGraph, node: Node) -> bool:
    """Whether it is enough to keep batches whole. A blob without axes is a number of the batches of all ranks."""
    return LAYERS[node.type].within_batch and all(graph.edges[edge].shape for edge in node.bottoms)


def _error(node: Node, reason: str, remedy: str = "") -> LayerError:
    return node.spec.error(f"{reason}, so its batch cannot be divided over ranks; train on one process{remedy}")
