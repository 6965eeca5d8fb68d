"""The nets whose batches may be divided over ranks, and those whose batches must stay whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from bpt.base.errors import PrototxtError
from bpt.base.violation import PARALLEL, Violation
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.layers.base import batch_of

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import ParallelSpec, PipelineSpec, RunPlan


def divisible_batch(plan: RunPlan, graph: LayerGraph) -> int:
    """Return the samples of a batch of a training net that is to be divided.

    Raises:
        PrototxtError: it has no layer that makes batches.
    """
    batch = batch_of(graph)
    if not batch:
        raise PrototxtError(
            "the training net has no layer that makes batches; there is nothing to divide", plan.origin("net")
        )
    return batch


def is_dividable(graph: LayerGraph) -> bool:
    """Return whether the samples of a batch (axis 0 of blobs) may be on different ranks."""
    return not _mixing(graph)


def samples_together(graph: LayerGraph) -> int:
    """Return how many samples of a data set workers of the outer layer must get together: a whole batch, or 1.

    A batch whose samples belong together is only of use as the data set has it.
    """
    if not any(LAYERS[node.type].within_batch for node, _ in _mixing(graph)):
        return 1
    data = [node for node in graph.nodes if issubclass(LAYERS[node.type], DataLayer) and node.tops]
    return math.lcm(*(graph.edges[node.tops[0]].shape[0] for node in data)) if data else max(batch_of(graph), 1)


def violations_of_data_set(graph: LayerGraph, samples: int) -> Iterator[Violation]:
    """Yield why a number of samples cannot be given to workers in whole batches, if the net needs these."""
    together = samples_together(graph)
    if samples % together:
        node, reason = next((node, why) for node, why in _mixing(graph) if LAYERS[node.type].within_batch)
        yield _of_layer(
            node,
            f"{reason}, so workers get whole batches of {together}, but the data set has {samples} samples, which are "
            f"{samples / together:.4g} of these",
            f"bring the data set to a multiple of {together} samples, or use exchange: ALLREDUCE with batch_scope: "
            "REPLICA",
        )


def violations_dealt_out(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Yield why workers of the outer layer cannot get whole batches of a net that wants them."""
    parallel = plan.parallel_param
    if parallel.node_ranks > parallel.replica_ranks:
        for node, reason in _mixing(graph):
            yield _of_layer(
                node,
                f"{reason}, so its batch cannot be divided over ranks",
                "leave out agwu_param { ranks }: then each worker trains whole batches",
            )


def violations_measured(graph: LayerGraph) -> Iterator[Violation]:
    """Yield why a net cannot be measured by batches of several sizes: they must stay whole."""
    for node, reason in _mixing(graph):
        yield _of_layer(
            node, f"{reason}, so batches have one size, and there is nothing to balance: no profile is needed"
        )


def violations_in_training(plan: RunPlan, graph: LayerGraph, replicas: int = 1) -> Iterator[Violation]:
    """Yield the layers that want whole batches, unless each replica is to train whole ones, as with Caffe's ``-gpu``.

    Args:
        replicas: of the net; one has whole batches anyway.
    """
    parallel = plan.parallel_param
    settings = []
    if replicas > 1 and parallel.batch_scope != pb.ParallelParameter.REPLICA:
        settings.append("set parallel_param { batch_scope: REPLICA }")
    if parallel.balance != pb.ParallelParameter.UNIFORM:
        settings.append("leave out balance")
    yield from _divided(graph, settings + _within_replica(parallel), "trains", replicas)


def violations_in_test(plan: RunPlan, graph: LayerGraph, replicas: int = 1) -> Iterator[Violation]:
    """Yield the layers of a test net that want whole batches, unless each replica can test all of them."""
    yield from _divided(graph, _within_replica(plan.parallel_param), "tests", replicas)


def violations_on_stages(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Yield the layers whose tops have as many rows as the data say, which no other stage can expect."""
    stages = plan.parallel_param.depth
    for node in graph.nodes if stages > 1 else ():
        if any(place < len(node.tops) for place in LAYERS[node.type].listed):
            why = f"the rows that {node.type} makes are as many as the data say, and stages send blobs of known shapes"
            yield _of_layer(node, why, "set num_stages: 1; the ranks then divide batches")


def gathering(graph: LayerGraph, param: PipelineSpec) -> frozenset[int]:
    """Return the layers of a training net that run once for all micro-batches of a pass: they need all samples at once.

    These are those whose samples belong together, those that count something in the data before they divide by it and,
    if that is asked for, those that normalise by the batch. None where batches travel whole.
    """
    if param.micro_batches == 1 or param.schedule == pb.PipelineParameter.DELAYED:
        return frozenset()
    whole = {node.index for node, _ in _mixing(graph)}
    over_batch = param.batch_norm_over == pb.PipelineParameter.BATCH
    for node in graph.nodes:
        layer = LAYERS[node.type]
        if layer.counts_by_data(node.spec) or (over_batch and layer.normalises_by_batch(node.spec)):
            whole.add(node.index)
    return frozenset(whole)


def _within_replica(parallel: ParallelSpec) -> list[str]:
    """Return what to do about the settings by which the ranks of a replica divide a batch; nothing if they do not."""
    splits = parallel.num_shards > 1 and parallel.fc_param.scheme == pb.FcParameter.PEER
    return ["set fc_param { scheme: MASTER_SLAVE }"] if splits else []


def _divided(graph: LayerGraph, settings: Sequence[str], does: str, replicas: int) -> Iterator[Violation]:
    """Yield the layers that forbid to divide a batch, unless each replica has whole batches, which need no setting."""
    for node, reason in _mixing(graph):
        layer = LAYERS[node.type]
        if replicas > 1:
            # A blob without axes is a number of the batches of all ranks.
            helps = layer.within_batch and all(graph.edges[edge].shape for edge in node.bottoms)
        else:  # what other ranks wait for must be of the shape that the graph says
            helps = layer.within_batch or not layer.whole_batch_only
        if settings or not helps:
            kept = f"each rank {does} whole batches" if replicas > 1 else "batches stay whole"
            remedy = f", or {' and '.join(settings)}: then {kept}" if helps and settings else ""
            yield _of_layer(
                node, f"{reason}, so its batch cannot be divided over ranks", f"train on one process{remedy}"
            )


def _of_layer(node: LayerNode, why: str, remedy: str = "") -> Violation:
    return Violation((PARALLEL,), why, remedy, node.name, node.spec.origin())


@lru_cache(maxsize=8)  # a search for a plan asks for each of hundreds of candidates
def _mixing(graph: LayerGraph) -> tuple[tuple[LayerNode, str], ...]:
    """Return the layers that want whole batches, and why."""
    found = []
    for node in graph.nodes:
        shapes = [graph.edges[edge].shape for edge in node.bottoms]
        if reason := LAYERS[node.type].mixes_samples(node.spec, shapes):
            found.append((node, reason))
    return tuple(found)
