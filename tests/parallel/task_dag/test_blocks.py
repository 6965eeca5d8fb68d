"""Blocks: layers that are split alike join, and branches stay apart."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.task_dag.areas import even_ranges
from bpt.parallel.task_dag.blocks import TaskBlock, group
from bpt.parallel.task_dag.split_strategy import SplitKind, SplitStrategy
from bpt.parallel.task_dag.task_costs import forward_seconds
from tests.support.task_dag_nets import LOSS, convolution, fully_connected, image_net, layer

SAMPLES = SplitStrategy(SplitKind.SAMPLES, 2, 6)


def grouped(graph: LayerGraph, strategies: dict[str, SplitStrategy], outputs: tuple[str, ...] = ()) -> list[str]:
    """The names of the blocks, with 2 ms a layer."""
    nodes = graph.nodes[1:]
    own_ways = {node.index: strategies.get(node.name, SplitStrategy()) for node in nodes}
    seconds = dict.fromkeys(own_ways, 2e-3)
    kept = [graph.blobs[name].index for name in outputs]
    blocks: list[TaskBlock] = group(graph, nodes, own_ways, seconds, kept)
    assert sum(len(block.nodes) for block in blocks) == len(nodes)
    assert all(block.seconds == pytest.approx(2e-3 * len(block.nodes)) for block in blocks)
    return [block.name for block in blocks]


CHAIN = image_net(
    convolution("a", "x", "num_output: 2 kernel_size: 1")
    + layer("Pooling", "a", "p", "pooling_param { kernel_size: 2 }")
    + fully_connected("f", "p", 3)
    + layer("TanH", "f", "t")
    + fully_connected("score", "t", 5)
    + LOSS
)


def test_layers_that_are_split_alike_join() -> None:
    alike = dict.fromkeys(("a", "a_relu", "Pooling a p", "f", "TanH f t"), SAMPLES)
    assert grouped(CHAIN, alike) == ["a..TanH f t", "score", "SoftmaxWithLoss score y loss"]


def test_layers_that_are_split_unlike_each_other_stay_apart() -> None:
    strategies = {"a": SAMPLES, "a_relu": SAMPLES}
    assert grouped(CHAIN, strategies)[:2] == ["a..a_relu", "Pooling a p..score"]
    other = strategies | {"Pooling a p": SplitStrategy(SplitKind.SAMPLES, 3, 6)}
    assert grouped(CHAIN, other)[:3] == ["a..a_relu", "Pooling a p", "f..score"]


def test_what_only_the_calling_thread_may_run_stays_apart() -> None:
    strategies = {"Pooling a p": SplitStrategy(pinned=True), "f": SplitStrategy(pinned=True)}
    assert grouped(CHAIN, strategies)[:4] == ["a..a_relu", "Pooling a p", "f", "TanH f t..score"]


def test_only_element_wise_layers_join_areas() -> None:
    assert grouped(CHAIN, {"a": SplitStrategy(SplitKind.AREAS, 2)})[:2] == ["a..a_relu", "Pooling a p..score"]


def test_element_wise_layers_lead_those_split_by_neurons() -> None:
    neurons = SplitStrategy(SplitKind.NEURONS, 2)
    names = grouped(CHAIN, {"f": neurons, "score": neurons})
    assert names[-4:] == ["a..Pooling a p", "f", "TanH f t..score", "SoftmaxWithLoss score y loss"]


def test_what_must_be_there_at_the_end_is_not_hidden_in_a_block() -> None:
    neurons = SplitStrategy(SplitKind.NEURONS, 2)
    names = grouped(CHAIN, {"f": neurons, "score": neurons}, outputs=("t",))
    assert names[-4:] == ["f", "TanH f t", "score", "SoftmaxWithLoss score y loss"]


def test_branches_do_not_join_what_they_come_from() -> None:
    graph = image_net(
        convolution("stem", "x", "num_output: 2 kernel_size: 1")
        + convolution("left", "stem", "num_output: 2 kernel_size: 1", relu=False)
        + convolution("right", "stem", "num_output: 2 kernel_size: 1", relu=False)
        + layer("Concat", "left right", "both")
        + fully_connected("score", "both", 5)
        + LOSS
    )
    names = grouped(graph, {})
    assert names[0].startswith("stem..")  # with its Split
    assert names[1:3] == ["left", "right"]


@pytest.mark.parametrize(("count", "parts", "expected"), [(7, 2, [(0, 3), (3, 7)]), (2, 3, [(0, 1), (1, 2)])])
def test_spans(count: int, parts: int, expected: list[tuple[int, int]]) -> None:
    assert even_ranges(count, parts) == expected


def test_costs_grow_with_work_and_share() -> None:
    shapes = {edge.index: edge.shape for edge in CHAIN.edges}
    conv = next(node for node in CHAIN.nodes if node.name == "a")
    whole = forward_seconds(conv, shapes, 8, 1.0)
    # 6 samples of 72 places, 2 filters of 3 channels: (2 · 3 + 1) · 864 operations; 8 + 1296 + 864 elements.
    assert conv.flops == 7 * 864
    assert whole == pytest.approx(6048 / 6e10 + 2168 / 2e9)
    assert forward_seconds(conv, shapes, 8, 0.5) < whole
