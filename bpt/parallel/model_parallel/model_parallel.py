"""Model-parallel layers: which are split, what runs on their slices, and which shard holds what (MPI-FC, §3.1).

A fully connected layer is split along its outputs: each shard holds some rows of the weight and computes those
features of all samples. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.base.violation import PARALLEL, Violation
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.split_pass import SplitBlock
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.part import WHOLE, BlobSlice, Part, slice_bounds

PEER = pb.FcParameter.PEER
_Mode = pb.LayerParallelParameter
_NUM_SHARDS = (PARALLEL, "num_shards")
_MPI_FC = "MpiFc"
_SPLIT_TYPES = ("InnerProduct", _MPI_FC)


def split_layers(graph: LayerGraph) -> tuple[LayerNode, ...]:
    """Return the layers that are split if there are several shards: all InnerProducts but those with ``mode: DATA``.

    Layers along another axis than 1, as behind a recurrent layer (T, N, …), stay whole unless they set ``mode: MODEL``.
    """
    fully_connected = (node for node in graph.nodes if node.type in _SPLIT_TYPES and _mode(node) != _Mode.DATA)
    return tuple(node for node in fully_connected if _mode(node) == _Mode.MODEL or _along_features(graph, node))


def _along_features(graph: LayerGraph, node: LayerNode) -> bool:
    """Return whether the outputs of an InnerProduct are behind the samples."""
    return node.spec.param.inner_product_param.axis % len(graph.edges[node.bottoms[0]].shape) == 1


def _mode(node: LayerNode) -> int | None:
    """Return the layer's ``parallel_param { mode }``; if it says none, MODEL for MpiFc layers, otherwise None."""
    param = node.spec.param.parallel_param
    if param.HasField("mode"):
        return param.mode
    return _Mode.MODEL if node.type == _MPI_FC else None


def violations(graph: LayerGraph) -> Iterator[Violation]:
    """Yield why the net cannot be divided over shards."""
    remedy = "keep it whole by parallel_param { mode: DATA }"
    for node in graph.nodes:
        if node.type not in _SPLIT_TYPES and _mode(node) == _Mode.MODEL:
            why = f"mode: MODEL splits InnerProduct layers only, not {node.type}"
            yield _of_layer(node, why, "set mode: DATA", "parallel_param", "mode")
    nodes = split_layers(graph)
    for node in nodes:
        if not _along_features(graph, node):
            axis, axes = node.spec.param.inner_product_param.axis, len(graph.edges[node.bottoms[0]].shape)
            why = f"axis {axis} of a bottom with {axes} axes: num_shards splits InnerProduct layers with axis 1 only"
            yield _of_layer(node, why, remedy, "inner_product_param", "axis")
        for other in graph.params:
            owner = graph.params[other.owner]
            if other.shared and node.index in (other.layer, owner.layer):
                layer = graph.nodes[owner.layer if other.layer == node.index else other.layer].name
                blob = other.blob if other.layer == node.index else owner.blob
                why = f'shares parameter "{other.name}" with layer "{layer}" and cannot be split by num_shards'
                yield _of_layer(node, why, remedy, "param", blob, "name")
    if not nodes and graph.phase == pb.TRAIN:
        yield Violation(
            _NUM_SHARDS,
            f'net "{graph.name}"{f" ({graph.source})" if graph.source else ""} has no layer that num_shards could '
            "split: InnerProduct layers are split, unless they say parallel_param { mode: DATA }",
            "set num_shards: 1",
        )


def _of_layer(node: LayerNode, why: str, remedy: str, *field: str | int) -> Violation:
    return Violation(_NUM_SHARDS, why, remedy, node.name, node.spec.origin(*field))


def blocks(graph: LayerGraph, scheme: int, stages: Sequence[int] = ()) -> tuple[SplitBlock, ...]:
    """Return the blocks of a net under an ``fc_param { scheme }``, in order.

    Args:
        stages: of each layer, in a pipeline; a block is on one of them.
    """
    heads = {node.index for node in split_layers(graph)}
    spans = [(head, _end(graph, head, stages) if scheme == PEER else head + 1) for head in sorted(heads)]
    found: list[SplitBlock] = []
    for start, end in spans:
        bottom, (top,) = graph.nodes[start].bottoms[0], graph.nodes[end - 1].tops
        reader = graph.edges[top].consumer
        hands_on = scheme == PEER and reader in heads and _on_one_stage(stages, start, reader)
        found.append(
            SplitBlock(
                start,
                end,
                bottom,
                top,
                features=graph.nodes[start].spec.param.inner_product_param.num_output,
                takes_slices=any(block.top == bottom and block.keeps_slices for block in found),
                keeps_slices=hands_on,
            )
        )
    return tuple(found)


def _on_one_stage(stages: Sequence[int], layer: int, other: int | None) -> bool:
    return not stages or (other is not None and stages[layer] == stages[other])


def _end(graph: LayerGraph, head: int, stages: Sequence[int]) -> int:
    """Return where the chain of element-wise layers behind layer ``head`` ends."""
    end = head + 1
    while graph.edges[graph.nodes[end - 1].tops[0]].consumer == end and graph.nodes[end].layer_type.elementwise:
        if not _on_one_stage(stages, head, end):
            break
        end += 1
    return end


def starts(graph: LayerGraph, scheme: int, stages: Sequence[int] = ()) -> tuple[int, ...]:
    """Return where to cut the graph so that each block is a segment of its own; ascending, the first is 0."""
    edges = {edge for block in blocks(graph, scheme, stages) for edge in (block.start, block.end)}
    return tuple(sorted({0} | edges - {len(graph)}))


def inside(graph: LayerGraph, scheme: int, stages: Sequence[int] = ()) -> set[int]:
    """Return the layers before which the graph must not be cut: those of each block but its first."""
    return {layer for block in blocks(graph, scheme, stages) for layer in range(block.start + 1, block.end)}


def parts(graph: LayerGraph, scheme: int, num_shards: int, within: Part = WHOLE) -> tuple[Part, ...]:
    """Return what each shard holds of a net or of a stage; a slice is empty where there are more shards than outputs.

    PEER: all layers, and a slice of those that are split. MASTER_SLAVE: shard 0, the master, all layers but those
    that are split; the others, its slaves, nothing but their slices.

    Args:
        within: what the stage runs.
    """
    split = tuple(node for node in split_layers(graph) if within.runs(node.index))
    if scheme == PEER:
        return tuple(Part(within.layers, _slices(graph, split, shard, num_shards)) for shard in range(num_shards))
    ours = frozenset(node.index for node in split)
    own = frozenset(layer for layer in range(len(graph)) if within.runs(layer))
    slaves = num_shards - 1
    return (Part(own - ours), *(Part(ours, _slices(graph, split, slave, slaves)) for slave in range(slaves)))


def _slices(graph: LayerGraph, split: tuple[LayerNode, ...], number: int, slices: int) -> dict[int, BlobSlice]:
    """Return slice ``number`` of all parameters of the layers ``split``, by Param.index."""
    found = {}
    for node in split:
        param = node.spec.param.inner_product_param
        bounds = slice_bounds(param.num_output, slices)[number]
        for index in node.params:
            weight = graph.params[index].blob == 0
            found[index] = BlobSlice(1 if weight and param.transpose else 0, *bounds)
    return found
