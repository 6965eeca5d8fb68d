"""Which nets' batches may be divided over ranks, and which must stay whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bpt.graph.layer_graph import LayerGraph, Node
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb
from bpt.violation import PARALLEL, Violation

if TYPE_CHECKING:
    from bpt.plan.spec import ParallelSpec, RunPlan


def is_dividable(graph: LayerGraph) -> bool:
    """Whether the samples of a batch (axis 0 of blobs) may be on different ranks."""
    return next(_mixing(graph), None) is None


def violations_dealt_out(graph: LayerGraph) -> Iterator[Violation]:
    """Why workers of the outer layer cannot get the samples of a net one by one."""
    for node, reason in _mixing(graph):
        if LAYERS[node.type].within_batch:
            yield _of_layer(
                node,
                f"{reason}, so its batches must stay as the data set has them, but SGWU, AGWU and ASGD deal samples "
                "out one by one",
                "use exchange: ALLREDUCE with batch_scope: REPLICA",
            )


def violations_measured(graph: LayerGraph) -> Iterator[Violation]:
    """Why a net cannot be measured by batches of several sizes: they must stay whole."""
    for node, reason in _mixing(graph):
        yield _of_layer(
            node, f"{reason}, so batches have one size, and there is nothing to balance: no profile is needed"
        )


def violations_in_training(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Layers that want whole batches, unless each rank is to train whole ones, as with Caffe's ``-gpu``."""
    parallel = plan.parallel_param
    replicas = parallel.batch_scope == pb.ParallelParameter.REPLICA
    settings = [] if replicas else ["set parallel_param { batch_scope: REPLICA }"]
    balanced = parallel.balance != pb.ParallelParameter.UNIFORM
    yield from _divided(graph, settings + _left_out(parallel, balance=balanced), "trains")


def violations_in_test(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Layers of a test net that want whole batches, unless each rank can test all of them."""
    yield from _divided(graph, _left_out(plan.parallel_param), "tests")


def violations_in_micro_batches(graph: LayerGraph, sync_batch_norm: bool) -> Iterator[Violation]:
    """Layers that need all samples of a batch at the same time."""
    for node in graph.nodes:
        layer = LAYERS[node.type]
        if layer.syncs(node.spec, sync_batch_norm):
            yield _of_layer(
                node,
                "is to normalise by the whole batch (sync), whose micro-batches are never there together",
                "set pipeline_param { micro_batches: 1 }, or leave sync out: then each micro-batch is normalised by "
                "itself",
            )
        if counts := layer.counts_by_data(node.spec):
            yield _of_layer(
                node,
                f"{counts}, so what a micro-batch counts for is known only when all of them are there",
                "set pipeline_param { micro_batches: 1 }",
            )


def _left_out(parallel: ParallelSpec, **others: bool) -> list[str]:
    """What to do about the settings by which no rank has whole batches; nothing if there are none."""
    there = {"num_stages": parallel.num_stages > 1, "num_shards": parallel.num_shards > 1, **others}
    names = [name for name, is_set in there.items() if is_set]
    return [f"leave out {' and '.join(names)}"] if names else []


def _divided(graph: LayerGraph, settings: Sequence[str], does: str) -> Iterator[Violation]:
    """Layers for which a batch cannot be divided, unless each rank has whole ones: nothing is to be set for that."""
    for node, reason in _mixing(graph):
        # A blob without axes is a number of the batches of all ranks.
        helps = LAYERS[node.type].within_batch and all(graph.edges[edge].shape for edge in node.bottoms)
        if settings or not helps:
            remedy = f", or {' and '.join(settings)}: then each rank {does} whole batches" if helps else ""
            yield _of_layer(
                node, f"{reason}, so its batch cannot be divided over ranks", f"train on one process{remedy}"
            )


def _of_layer(node: Node, why: str, remedy: str = "") -> Violation:
    return Violation((PARALLEL,), why, remedy, node.name, node.spec.origin())


def _mixing(graph: LayerGraph) -> Iterator[tuple[Node, str]]:
    """The layers that want whole batches, and why."""
    for node in graph.nodes:
        shapes = [graph.edges[edge].shape for edge in node.bottoms]
        if reason := LAYERS[node.type].mixes_samples(node.spec, shapes):
            yield node, reason
