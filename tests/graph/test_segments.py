"""Cutting a graph: which edges cross the borders."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Arity
from bpt.graph.segments import Segment, cut, per_layer, starts_by_chunks, starts_by_size, trained_layers, whole
from tests.support.stand_ins import WEIGHT, StandIn, build, registry

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


# A Learner has 6 + 3 parameters, a Wide one 6, of Statistics none is trained.
#  0 in   1 a (9)   2 n   3 b (6)   4 s   5 c (9)   6 l
SIZED = """layer { name: "in" type: "Source" top: "x" top: "y" }
    layer { name: "a" type: "Learner" bottom: "x" top: "a" }
    layer { name: "n" type: "Neuron" bottom: "a" top: "n" }
    layer { name: "b" type: "Wide" bottom: "n" top: "b" }
    layer { name: "s" type: "Statistics" bottom: "b" top: "s" }
    layer { name: "c" type: "Learner" bottom: "s" top: "c" }
    layer { name: "l" type: "Loss" bottom: "c" bottom: "y" }"""


@pytest.mark.parametrize(
    ("parameters", "starts"),
    [
        (1, [0, 1, 3, 5]),
        (6, [0, 1, 3, 5]),
        (7, [0, 1, 5]),  # b's 6 are too few, with a's they are enough
        (9, [0, 1, 5]),
        (10, [0, 3]),  # c's with b's; a's 9 are what is left
        (15, [0, 3]),
        (16, [0, 1]),
        (24, [0, 1]),
        (25, [0]),
    ],
)
def test_cuts_where_enough_gradients_have_come_together(parameters: int, starts: list[int]) -> None:
    graph = build(SIZED)
    assert starts_by_size(graph, parameters) == starts
    assert [segment.start for segment in cut(graph, starts)] == starts


def test_what_is_not_trained_or_shared_does_not_count() -> None:
    frozen = SIZED.replace('top: "c"', 'top: "c" param { lr_mult: 0 } param { lr_mult: 0 }')
    assert starts_by_size(build(frozen), 9) == [0, 1]  # 6 of b and 9 of a
    # c uses a's weight: of its own it has 3.
    shared = SIZED.replace('top: "a" }', 'top: "a" param { name: "w" } }')
    shared = shared.replace('top: "c" }', 'top: "c" param { name: "w" } }')
    assert starts_by_size(build(shared), 9) == [0, 1, 3]


def test_nothing_to_train_is_one_segment() -> None:
    assert starts_by_size(build('layer { name: "in" type: "Source" top: "x" }'), 1) == [0]
    assert starts_by_size(build(""), 1) == [0]


def test_a_first_layer_that_learns_needs_no_cut() -> None:
    teller = StandIn(Arity(bottoms=(0, 0), tops=(1, None)), top=(4, 2), params=(WEIGHT,))
    text = 'layer { name: "t" type: "Teller" top: "x" } layer { name: "a" type: "Learner" bottom: "x" top: "a" }'
    assert starts_by_size(build(text, types=registry(Teller=teller)), 6) == [0, 1]


def test_trained_layers_count_from_the_top() -> None:
    graph = build(SIZED)
    assert [graph.nodes[layer].name for layer in trained_layers(graph)] == ["c", "b", "a"]
    frozen = SIZED.replace('top: "c"', 'top: "c" param { lr_mult: 0 } param { lr_mult: 0 }')
    assert trained_layers(build(frozen)) == [3, 1]
    # c has nothing but a's weight, which is complete when a's backward is done.
    shared = SIZED.replace('top: "a" }', 'top: "a" param { name: "w" } }')
    shared = shared.replace('top: "c" }', 'top: "c" param { name: "w" } param { lr_mult: 0 } }')
    assert trained_layers(build(shared)) == [3, 1]
    assert trained_layers(build("")) == []


@pytest.mark.parametrize(
    ("lengths", "starts"), [((1, 1, 1), [0, 3, 5]), ((2, 1), [0, 3]), ((1, 2), [0, 5]), ((3,), [0])]
)
def test_a_chunk_starts_with_its_lowest_trained_layer(lengths: tuple[int, ...], starts: list[int]) -> None:
    """And the last one with the net: what is below the lowest has no gradients to wait for."""
    graph = build(SIZED)
    assert starts_by_chunks(graph, lengths) == starts
    assert [segment.start for segment in cut(graph, starts)] == starts


def test_nothing_to_train_is_one_chunk() -> None:
    assert starts_by_chunks(build('layer { name: "in" type: "Source" top: "x" }'), ()) == [0]
