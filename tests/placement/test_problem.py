"""What crosses between layers, and where a net may be cut."""

from __future__ import annotations

from bpt.placement.problem import Crossing, Device, Link, problem_of
from bpt.proto import bpt_pb2 as pb
from bpt.proto.text import parse_text
from tests.graph.stand_ins import build

#  0 in → x (4, 2), y   1 a   2 split of a   3 b   4 j (reads b and a)   5 loss (reads j and y)
SKIP = """layer { name: "in" type: "Source" top: "x" top: "y" }
    layer { name: "a" type: "Learner" bottom: "x" top: "a" }
    layer { name: "b" type: "Learner" bottom: "a" top: "b" }
    layer { name: "j" type: "Join" bottom: "b" bottom: "a" top: "j" }
    layer { name: "l" type: "Loss" bottom: "j" bottom: "y" }"""
TWO = (Device("one"), Device("two"))


def test_crossings() -> None:
    problem = problem_of(build(SKIP), TWO, Link(), pb.PipelineParameter())
    assert [cost.name for cost in problem.costs] == ["in", "a", "a_a_0_split", "b", "j", "l"]
    assert problem.crossings == (
        Crossing(0, (1,), 32, False),  # x: nothing before it learns
        Crossing(0, (5,), 32, False),  # y
        Crossing(1, (2,), 32, True),
        Crossing(2, (3, 4), 32, True),  # both tops of the Split
        Crossing(3, (4,), 32, True),
        Crossing(4, (5,), 32, True),
    )
    assert problem.sources == (0,)
    assert problem.cuts == (0, 3, 4, 5)  # not between the data and the first layer, nor before the Split
    assert problem.beside_sources == ((0, 2),)
    assert (problem.rule, problem.micro_batches) == (pb.PipelineParameter.GPIPE, 4)


def test_replicas_divide_the_batch() -> None:
    graph, param = build(SKIP), pb.PipelineParameter()
    whole, half = (problem_of(graph, TWO, Link(), param, replicas=replicas) for replicas in (1, 2))
    assert [crossing.bytes for crossing in half.crossings] == [16] * 6
    assert [cost.activations for cost in half.costs] == [cost.activations / 2 for cost in whole.costs]
    assert (whole.replicas, half.replicas) == (1, 2)


def test_where_gradients_are_added() -> None:
    """Over micro-batches, or over passes; DELAYED has neither."""
    for text, passes, adds in (
        ("micro_batches: 1", 1, False), ("micro_batches: 1", 2, True), ("micro_batches: 2", 1, True),
        ("micro_batches: 2 schedule: DELAYED", 1, False),
    ):  # fmt: skip
        param = parse_text(text, pb.PipelineParameter, "text").message
        assert problem_of(build(SKIP), TWO, Link(), param, passes=passes).adds is adds


def test_layers_that_share_parameters_stay_together() -> None:
    again = 'layer { name: "c" type: "Learner" bottom: "j" top: "c" param { name: "w" } }'
    text = SKIP.replace('top: "a" }', 'top: "a" param { name: "w" } }').replace(
        'bottom: "a" top: "j" }', 'bottom: "a" top: "j" }\n' + again
    )
    problem = problem_of(build(text), TWO, Link(), pb.PipelineParameter())
    assert problem.cuts == (0, 7)  # in a Split b j Split c | loss


def test_runs_that_the_caller_keeps_together() -> None:
    problem = problem_of(build(SKIP), TWO, Link(), pb.PipelineParameter(), together=[(3, 5)])
    assert problem.cuts == (0, 3, 5)


def test_no_stage_has_data_only() -> None:
    text = SKIP.replace('layer { name: "l"', 'layer { name: "late" type: "Source" top: "z" }\nlayer { name: "l"')
    text += '\nlayer { name: "s" type: "Sink" bottom: "z" }'
    problem = problem_of(build(text), TWO, Link(), pb.PipelineParameter())
    names = [cost.name for cost in problem.costs]
    assert names[5] == "late"
    assert problem.sources == (0, 5)
    assert problem.cuts == (0, 3, 4, 6, 7)


def test_delayed_batches_travel_whole() -> None:
    param = pb.PipelineParameter(schedule=pb.PipelineParameter.DELAYED)
    assert problem_of(build(SKIP), TWO, Link(), param).micro_batches == 1


def test_link() -> None:
    assert Link(0.5, 10.0).seconds(20.0, 3) == 3.5
    assert Link().seconds(1e9, 3) == 0
