"""Which nets' batches may be divided over ranks, and which must stay whole."""

from __future__ import annotations

from bpt.comm.grid import ProcessGrid
from bpt.errors import LayerError
from bpt.graph.layer_graph import LayerGraph, Node
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb


def is_dividable(graph: LayerGraph) -> bool:
    """Whether the samples of a batch (axis 0 of blobs) may be on different ranks."""
    return not any(_reason(graph, node) for node in graph.nodes)


def check_any_order(graph: LayerGraph, exchange: str) -> None:
    """Refuse a net whose batches must stay whole, where workers get samples one by one.

    Args:
        exchange: the name of the one that divides the data set.

    Raises:
        LayerError: which layer sees it.
    """
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and LAYERS[node.type].within_batch:
            raise node.spec.error(
                f"{reason}, so which samples make a batch is not all the same, but exchange: {exchange} gives them to "
                "workers one by one; use exchange: ALLREDUCE with batch_scope: REPLICA"
            )


def check_dividable(graph: LayerGraph) -> None:
    """Refuse a net whose batches must stay whole.

    Raises:
        LayerError: which layer wants it so.
    """
    for node in graph.nodes:
        if reason := _reason(graph, node):
            raise _error(node, reason)


def check_training(graph: LayerGraph, param: pb.ParallelParameter, grid: ProcessGrid) -> None:
    """Refuse a net whose batches must stay whole, unless each rank is to train whole ones, as with Caffe's ``-gpu``.

    Raises:
        LayerError: which layer wants it so, and what to set if that helps.
    """
    even = param.balance == pb.ParallelParameter.UNIFORM
    check_whole(graph, grid)
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and not (even and param.batch_scope == pb.ParallelParameter.REPLICA):
            setting = "parallel_param { batch_scope: REPLICA }" + ("" if even else " without balance")
            raise _error(node, reason, f", or set {setting}: then each rank trains whole batches")


def check_whole(graph: LayerGraph, grid: ProcessGrid) -> None:
    """Refuse a net whose batches must stay whole, unless each rank can have whole ones.

    Raises:
        LayerError: which layer wants it so.
    """
    for node in graph.nodes:
        reason = _reason(graph, node)
        if reason and (grid.shards > 1 or grid.stages > 1 or not _may_be_whole(graph, node)):
            raise _error(node, reason)


def _reason(graph: LayerGraph, node: Node) -> str:
    return LAYERS[node.type].mixes_samples(node.spec, [graph.edges[edge].shape for edge in node.bottoms])


def _may_be_whole(graph: LayerGraph, node: Node) -> bool:
    """Whether it is enough to keep batches whole. A blob without axes is a number of the batches of all ranks."""
    return LAYERS[node.type].within_batch and all(graph.edges[edge].shape for edge in node.bottoms)


def _error(node: Node, reason: str, remedy: str = "") -> LayerError:
    return node.spec.error(f"{reason}, so its batch cannot be divided over ranks; train on one process{remedy}")
