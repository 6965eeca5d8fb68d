"""Cutting a graph: which edges cross the borders."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment, cut, per_layer, whole
from tests.graph.stand_ins import build

#  layer     edges read → written     (edge 6 counts as a loss and is read by nobody)
#  0 in      → 0 x, 1 y
#  1 a       0 → 2
#  2 split   2 → 3, 4
#  3 b       3 → 5
#  4 l       5 1 → 6
#  5 j       4 → 7
TEXT = """layer { name: "in" type: "Source" top: "x" top: "y" }
    layer { name: "a" type: "Learner" bottom: "x" top: "a" }
    layer { name: "b" type: "Learner" bottom: "a" top: "b" }
    layer { name: "l" type: "Loss" bottom: "b" bottom: "y" }
    layer { name: "j" type: "Neuron" bottom: "a" top: "j" }"""


@pytest.fixture(name="graph")
def make_graph() -> LayerGraph:
    return build(TEXT)


def test_whole(graph: LayerGraph) -> None:
    assert whole(graph) == (Segment(0, 0, 6, (), (6, 7)),)


def test_two_cuts(graph: LayerGraph) -> None:
    assert cut(graph, [0, 3, 5]) == (
        Segment(0, 0, 3, (), (1, 3, 4)),
        Segment(1, 3, 5, (1, 3), (6,)),
        Segment(2, 5, 6, (4,), (7,)),
    )


def test_per_layer(graph: LayerGraph) -> None:
    assert per_layer(graph) == (
        Segment(0, 0, 1, (), (0, 1)),
        Segment(1, 1, 2, (0,), (2,)),
        Segment(2, 2, 3, (2,), (3, 4)),
        Segment(3, 3, 4, (3,), (5,)),
        Segment(4, 4, 5, (1, 5), (6,)),
        Segment(5, 5, 6, (4,), (7,)),
    )


def test_a_loss_that_is_read_inside_leaves_the_segment_too() -> None:
    graph = build(
        TEXT.replace('bottom: "y" }', 'bottom: "y" top: "l" }') + '\nlayer { name: "s" type: "Sink" bottom: "l" }'
    )
    assert whole(graph) == (Segment(0, 0, 7, (), (6, 7)),)


def test_a_net_without_layers() -> None:
    graph = build("")
    assert whole(graph) == (Segment(0, 0, 0, (), ()),)
    assert per_layer(graph) == ()
