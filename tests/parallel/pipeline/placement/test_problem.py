"""Problems of placement: costs, crossings, devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpt.base.errors import UserError
from bpt.config.plan.run_plan import PipelineSpec
from bpt.config.precision import FLOAT32
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import parse_text
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, costs_of, problem_of
from tests.support.net_cases import graph_in
from tests.support.stand_ins import build

#  in: 2x3 and labels 2; a: 3 → 4 (weights 12 + 4); relu; b: 4 → 5 (weights 20, frozen, no bias); loss
TEXT = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { lr_mult: 0 }
        inner_product_param { num_output: 5 bias_term: false } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "b" bottom: "y" top: "l" }
"""

CONV_BLOCKS = pb.PipelineParameter.CONV_BLOCKS


def graph_of(text: str) -> LayerGraph:
    return graph_in(parse_text(text, pb.NetParameter, "net.prototxt").message, pb.TRAIN)


def test_from_the_graph() -> None:
    graph = graph_of(TEXT)
    flops = [float(node.flops) for node in graph.nodes]
    assert flops[1] >= 2 * 2 * 3 * 4  # multiply and add, 2 samples
    assert costs_of(graph, FLOAT32) == (
        Cost("in", 0.0, 0.0, 0, 4 * (6 + 2)),
        Cost(  # values, gradients, history; its bottom wants no diff
            "a", flops[1], 2 * flops[1], 3 * 4 * 16, 4 * 8, 4 * 16, 4 * 12, 4 * 8, 2 * flops[1]
        ),
        Cost("r", flops[2], 2 * flops[2], diffs=4 * (8 + 8)),  # over its bottom
        Cost("b", flops[3], 2 * flops[3], 4 * 20, 4 * 10, diffs=4 * (8 + 10)),  # frozen: values only
        Cost("l", flops[4], 2 * flops[4], 0, 4, diffs=4 * 10),
    )
    assert costs_of(graph, FLOAT32, histories=2)[1].parameters == 4 * 4 * 16
    assert costs_of(graph, FLOAT32, histories=0)[1].parameters == 2 * 4 * 16


def test_replicas_divide_what_depends_on_samples() -> None:
    whole, half = (costs_of(graph_of(TEXT), FLOAT32, replicas=replicas)[1] for replicas in (1, 2))
    assert half == replace(
        whole, forward=whole.forward / 2, backward=whole.backward / 2, activations=whole.activations / 2,
        diffs=whole.diffs / 2, weights=whole.weights / 2,
    )  # fmt: skip


def test_what_runs_no_backward_costs_none() -> None:
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    graph = graph_of(TEXT.replace('bottom: "x" top: "a"', f'bottom: "x" top: "a" {frozen}'))
    assert [cost.backward for cost in costs_of(graph, FLOAT32)[:4]] == [0.0] * 4


def test_measured() -> None:
    graph = graph_of(TEXT)
    measured = {"a": (1.0, 3.0), "r": (0.5, 0.25), "b": (2.0, 4.0), "l": (0.125, 0.0), "in": (9.0, 9.0)}
    assert [(cost.forward, cost.backward) for cost in costs_of(graph, FLOAT32, measured)] == [
        (0.0, 0.0), (1.0, 3.0), (0.5, 0.25), (2.0, 4.0), (0.125, 0.0)
    ]  # fmt: skip
    del measured["b"]
    with pytest.raises(UserError, match='no layer "b"; measure'):
        costs_of(graph, FLOAT32, measured)


def test_shared_parameters_count_at_their_owner() -> None:
    shared = 'param { name: "w" } param { name: "v" } inner_product_param { num_output: 4 }'
    text = TEXT.replace("inner_product_param { num_output: 4 }", shared)
    text += f'layer {{ name: "c" type: "InnerProduct" bottom: "x" top: "c" {shared} }}'
    costs = {cost.name: cost for cost in costs_of(graph_of(text), FLOAT32)}
    assert (costs["a"].parameters, costs["c"].parameters) == (3 * 4 * 16, 0)
    assert costs["x_in_0_split"] == Cost("x_in_0_split", 0.0, 0.0, 0, 0)


#  0 in → x (4, 2), y   1 a   2 split of a   3 b   4 j (reads b and a)   5 loss (reads j and y)
SKIP = """layer { name: "in" type: "Source" top: "x" top: "y" }
    layer { name: "a" type: "Learner" bottom: "x" top: "a" }
    layer { name: "b" type: "Learner" bottom: "a" top: "b" }
    layer { name: "j" type: "Join" bottom: "b" bottom: "a" top: "j" }
    layer { name: "l" type: "Loss" bottom: "j" bottom: "y" }"""
TWO = (Device("one"), Device("two"))


def test_crossings() -> None:
    problem = problem_of(build(SKIP), TWO, DeviceLink(), PipelineSpec(), FLOAT32)
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
    graph, param = build(SKIP), PipelineSpec()
    whole, half = (problem_of(graph, TWO, DeviceLink(), param, FLOAT32, replicas=replicas) for replicas in (1, 2))
    assert [crossing.bytes for crossing in half.crossings] == [16] * 6
    assert [cost.activations for cost in half.costs] == [cost.activations / 2 for cost in whole.costs]
    assert (whole.replicas, half.replicas) == (1, 2)


def test_where_gradients_are_added() -> None:
    """Over micro-batches, or over passes; DELAYED has neither."""
    one, two = PipelineSpec(micro_batches=1), PipelineSpec(micro_batches=2)
    delayed = PipelineSpec(micro_batches=2, schedule=pb.PipelineParameter.DELAYED)
    for param, passes, adds in ((one, 1, False), (one, 2, True), (two, 1, True), (delayed, 1, False)):
        assert problem_of(build(SKIP), TWO, DeviceLink(), param, FLOAT32, passes=passes).adds is adds


def test_layers_that_share_parameters_stay_together() -> None:
    again = 'layer { name: "c" type: "Learner" bottom: "j" top: "c" param { name: "w" } }'
    text = SKIP.replace('top: "a" }', 'top: "a" param { name: "w" } }').replace(
        'bottom: "a" top: "j" }', 'bottom: "a" top: "j" }\n' + again
    )
    problem = problem_of(build(text), TWO, DeviceLink(), PipelineSpec(), FLOAT32)
    assert problem.cuts == (0, 7)  # in a Split b j Split c | loss


def test_runs_that_the_caller_keeps_together() -> None:
    problem = problem_of(build(SKIP), TWO, DeviceLink(), PipelineSpec(), FLOAT32, together=[(3, 5)])
    assert problem.cuts == (0, 3, 5)


def test_no_stage_has_data_only() -> None:
    text = SKIP.replace('layer { name: "l"', 'layer { name: "late" type: "Source" top: "z" }\nlayer { name: "l"')
    text += '\nlayer { name: "s" type: "Sink" bottom: "z" }'
    problem = problem_of(build(text), TWO, DeviceLink(), PipelineSpec(), FLOAT32)
    names = [cost.name for cost in problem.costs]
    assert names[5] == "late"
    assert problem.sources == (0, 5)
    assert problem.cuts == (0, 3, 4, 6, 7)


def test_delayed_batches_travel_whole() -> None:
    param = PipelineSpec(schedule=pb.PipelineParameter.DELAYED)
    assert problem_of(build(SKIP), TWO, DeviceLink(), param, FLOAT32).micro_batches == 1


def test_link() -> None:
    assert DeviceLink(0.5, 10.0).seconds(20.0, 3) == 3.5
    assert DeviceLink().seconds(1e9, 3) == 0


BLOCKS = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 1, 3, 3] } } }
    layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 1 kernel_size: 1 } }
    layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
    layer { name: "p" type: "Power" bottom: "a" top: "p" parallel_param { block: "tail" } }
    layer { name: "q" type: "Power" bottom: "p" top: "q" parallel_param { block: "tail" } }"""


@pytest.mark.parametrize(
    ("param", "cuts"),
    [
        (PipelineSpec(), (0, 2, 3)),  # blocks that layers name stay together always
        (PipelineSpec(partition_by=CONV_BLOCKS), (0,)),  # Power works element by element, too
        (PipelineSpec(partition_by=CONV_BLOCKS, allocator=pb.PipelineParameter.GABRA), (0,)),
        (
            PipelineSpec(partition_by=CONV_BLOCKS, allocator=pb.PipelineParameter.MANUAL),
            (0, 2, 3),
        ),  # layers say where they run
    ],
)
def test_blocks_are_not_cut(param: PipelineSpec, cuts: tuple[int, ...]) -> None:
    assert problem_of(graph_of(BLOCKS), TWO, DeviceLink(), param, FLOAT32).cuts == cuts
