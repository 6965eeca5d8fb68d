"""Blocks: layers of one branch that a task runs after each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.layers import LAYERS
from bpt.parallel.task_dag.split_strategy import SplitKind, SplitStrategy


@dataclass
class TaskBlock:
    """Consecutive layers of one branch that are split alike.

    Attributes:
        seconds: the estimated time of their forward on one core, all parts together.
        bottoms: the edges that other blocks or segments make.
        tops: the edges that other blocks or segments read.
    """

    index: int
    nodes: list[LayerNode]
    strategy: SplitStrategy
    seconds: float
    bottoms: tuple[int, ...] = ()
    tops: tuple[int, ...] = ()
    made: set[int] = field(default_factory=set)  # all edges that its layers write

    @property
    def name(self) -> str:
        """The layers' names, for messages and reports."""
        first, last = self.nodes[0].name, self.nodes[-1].name
        return first if len(self.nodes) == 1 else f"{first}..{last}"

    @property
    def where(self) -> str:
        """The layers' names for errors of the backward pass."""
        names = [f'"{node.name}"' for node in self.nodes]
        return f"layer {names[0]}" if len(names) == 1 else f"layers {names[0]} to {names[-1]}"

    @property
    def needs_backward(self) -> bool:
        return any(node.needs_backward for node in self.nodes)


def group(
    graph: LayerGraph, nodes: Sequence[LayerNode], strategies: Mapping[int, SplitStrategy],
    seconds: Mapping[int, float], outputs: Collection[int], in_half: Collection[int] = (),
) -> list[TaskBlock]:  # fmt: skip
    """Return the blocks of a segment, in an order in which they can run.

    A layer joins the block that makes its only bottom if both are split alike, since each of its tasks could only run
    after one task of the block. Branches stay separate, so that they can run at the same time.

    Args:
        strategies, seconds: of each layer, by its index in the graph; Input layers have none.
        outputs: edges that must be there when the segment is done.
        in_half: layers that compute in half precision or cast from it, which lead no others.
    """
    blocks: list[TaskBlock] = []
    maker: dict[int, TaskBlock] = {}
    for node in nodes:
        if node.index not in strategies:
            continue
        strategy, cost = strategies[node.index], seconds[node.index]
        block = maker.get(node.bottoms[0]) if len(node.bottoms) == 1 else None
        if block is not None and node.bottoms[0] not in outputs and _leads(block, node, strategy, in_half):
            block.strategy = strategy
        elif block is None or node.bottoms[0] in outputs or not _joins(block, node, strategy):
            block = TaskBlock(len(blocks), [], strategy, 0.0)
            blocks.append(block)
        block.nodes.append(node)
        block.seconds += cost
        block.made.update(node.tops)
        maker.update(dict.fromkeys(node.tops, block))
    for block in blocks:
        block.bottoms = tuple(e for node in block.nodes for e in node.bottoms if e not in block.made)
        read = {edge for node in block.nodes for edge in node.bottoms}
        block.tops = tuple(e for node in block.nodes for e in node.tops if e not in read or e in outputs)
    assert all(graph.edges[edge].consumer is not None for block in blocks for edge in block.bottoms)
    return blocks


def _leads(block: TaskBlock, node: LayerNode, strategy: SplitStrategy, in_half: Collection[int]) -> bool:
    """Return whether a block of element-wise layers can begin one that is split by neurons."""
    if any(inner.index in in_half for inner in block.nodes):
        return False
    if (
        strategy.kind != SplitKind.NEURONS
        or block.strategy != SplitStrategy()
        or not all(map(_is_pointwise, block.nodes))
    ):
        return False
    return node.bottom_needs_diff[0] == all(inner.needs_backward for inner in block.nodes)


def _is_pointwise(node: LayerNode) -> bool:
    layer = LAYERS[node.type]
    return layer.elementwise and layer.sample_independent


def _joins(block: TaskBlock, node: LayerNode, strategy: SplitStrategy) -> bool:
    if len(block.nodes[-1].tops) > 1 or strategy.pinned or block.strategy.pinned:
        return False
    if block.strategy.kind == SplitKind.AREAS:
        return _is_pointwise(node) and strategy.kind == SplitKind.WHOLE
    return strategy == block.strategy and strategy.kind in (SplitKind.WHOLE, SplitKind.SAMPLES)
