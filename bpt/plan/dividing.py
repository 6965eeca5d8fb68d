"""Which nets' batches may be divided over ranks, and which must stay whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.graph.layer_graph import LayerGraph, Node
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb


def is_dividable(graph: LayerGraph) -> bool:
    """Whether the samples of a batch (axis 0 of blobs) may be on different ranks."""
    return next(_mixing(graph), None) is None


def check_dealt_out(graph: LayerGraph) -> None:
    """Refuse a net whose batches must stay whole, where workers get samples one by one: in the outer layer.

    Raises:
        LayerError: which layer wants it so.
    """
    for node, reason in _mixing(graph):
        if LAYERS[node.type].within_batch:
            raise node.spec.error(
                f"{reason}, so its batches must stay as the data set has them, but SGWU, AGWU and ASGD deal samples "
                "out one by one; use exchange: ALLREDUCE with batch_scope: REPLICA"
            )


def check_measurable(graph: LayerGraph) -> None:
    """Refuse to measure a net by batches of several sizes whose batches must stay whole.

    Raises:
        LayerError: which layer wants it so.
    """
    for node, reason in _mixing(graph):
        raise node.spec.error(
            f"{reason}, so batches have one size, and there is nothing to balance: no profile is needed"
        )


def check_training(graph: LayerGraph, param: pb.ParallelParameter) -> None:
    """Refuse a net whose batches must stay whole, unless each rank is to train whole ones, as with Caffe's ``-gpu``.

    Raises:
        LayerError: which layer wants it so, and what to set if that helps.
    """
    replicas = param.batch_scope == pb.ParallelParameter.REPLICA
    settings = [] if replicas else ["set parallel_param { batch_scope: REPLICA }"]
    _check(graph, settings + _left_out(param, balance=param.balance != pb.ParallelParameter.UNIFORM), "trains")


def check_test(graph: LayerGraph, param: pb.ParallelParameter) -> None:
    """Refuse a test net whose batches must stay whole, unless each rank can test all of them.

    Raises:
        LayerError: which layer wants it so, and what to leave out if that helps.
    """
    _check(graph, _left_out(param), "tests")


def _left_out(param: pb.ParallelParameter, **others: bool) -> list[str]:
    """What to do about the settings by which no rank has whole batches; nothing if there are none."""
    there = {"num_stages": param.num_stages > 1, "num_shards": param.num_shards > 1, **others}
    names = [name for name, is_set in there.items() if is_set]
    return [f"leave out {' and '.join(names)}"] if names else []


def _check(graph: LayerGraph, settings: Sequence[str], does: str) -> None:
    """Refuse a net that is not dividable, unless each rank has whole batches: nothing is to be set for that."""
    for node, reason in _mixing(graph):
        # A blob without axes is a number of the batches of all ranks.
        helps = LAYERS[node.type].within_batch and all(graph.edges[edge].shape for edge in node.bottoms)
        if settings or not helps:
            remedy = f", or {' and '.join(settings)}: then each rank {does} whole batches" if helps else ""
            raise node.spec.error(f"{reason}, so its batch cannot be divided over ranks; train on one process{remedy}")


def _mixing(graph: LayerGraph) -> Iterator[tuple[Node, str]]:
    """The layers that want whole batches, and why."""
    for node in graph.nodes:
        shapes = [graph.edges[edge].shape for edge in node.bottoms]
        if reason := LAYERS[node.type].mixes_samples(node.spec, shapes):
            yield node, reason
