"""ReLU overwrites what a convolution before it has made: nobody sees a difference."""

from __future__ import annotations

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.layer_tasks import calls_of
from bpt.parallel.task_dag.split_strategy import SplitStrategy
from tests.support import task_dag_nets as nets
from tests.support.golden_cases import graph_of

POINT = "num_output: 4 kernel_size: 1"
WINDOW = "num_output: 4 kernel_size: 3 pad: 1"
PARAMS = "param { lr_mult: 0 } param { lr_mult: 0 } convolution_param"

CASES = {  # each reads "x" and ends in "z"
    "once": nets.convolution("z", "x", WINDOW),
    "twice": nets.convolution("z", "x", WINDOW) + nets.layer("ReLU", "z", "z"),
    "slope": nets.convolution("z", "x", WINDOW, relu=False)
    + nets.layer("ReLU", "z", "z", "relu_param { negative_slope: 0.1 }"),
    "another blob": nets.convolution("a", "x", WINDOW, relu=False) + nets.layer("ReLU", "a", "z"),
    "read by others": nets.convolution("a", "x", WINDOW, relu=False)
    + nets.layer("ReLU", "a", "b")
    + nets.layer("Eltwise", "a b", "z"),
    "loss": nets.convolution("a", "x", WINDOW, relu=False).replace('top: "a"', 'top: "a" loss_weight: 0.1', 1)
    + nets.layer("ReLU", "a", "z"),
    "frozen": nets.convolution("z", "x", WINDOW).replace("convolution_param", PARAMS, 1),
    "diff kept back": nets.convolution("a", "x", WINDOW, relu=False)
    + nets.layer("ReLU", "a", "a", "propagate_down: false")
    + nets.convolution("z", "a", POINT),
    "point": nets.convolution("a", "x", POINT) + nets.convolution("z", "a", POINT),
    "of rows": nets.convolution("z", "x", "num_output: 9 kernel_size: 3 pad: 1 axis: 2"),
    "in front": nets.layer("ReLU", "x", "x") + nets.convolution("z", "x", WINDOW, relu=False),
}


@pytest.mark.parametrize("engine", [pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST])
@pytest.mark.parametrize("samples", [1, 5, 6])
@pytest.mark.parametrize("layers", CASES.values(), ids=CASES)
def test_the_numbers_of_the_layers(layers: str, samples: int, engine: int) -> None:
    graph = nets.image_net(layers + nets.fully_connected("score", "z", 5) + nets.LOSS, samples)
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine), passes=2)
    for grain in (nets.TINY, 1.0):
        operator = nets.dag_operator(nets.net_of(graph), engine=engine, grain=grain)
        nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)


def test_diffs_of_the_inputs() -> None:
    text = f"""force_backward: true
        layer {{ name: "in" type: "Input" top: "x" top: "y"
        input_param {{ shape {{ dim: 6 dim: 3 dim: 9 dim: 8 }} shape {{ dim: 6 }} }} }}
        {nets.convolution("first", "x", POINT)} {nets.convolution("a", "first", WINDOW)}
        {nets.fully_connected("score", "a", 5)}"""
    graph = graph_of(text + nets.LOSS)
    engine = pb.SolverParameter.CHANNELS_LAST
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine))
    assert any(name.startswith("diff") for name in expected)
    actual = nets.pass_over(nets.dag_operator(nets.net_of(graph), engine=engine))
    nets.assert_same(actual, expected, 1e-12)


def test_which_relu_overwrites() -> None:
    text = (
        nets.convolution("a", "x", WINDOW)
        + nets.layer("ReLU", "a", "b")
        + nets.layer("TanH", "b", "c")
        + nets.layer("ReLU", "c", "d")
    )
    net = nets.net_of(nets.image_net(text))
    nodes = list(net.graph.nodes[1:])
    operator = nets.dag_operator(net)
    calls = calls_of(TaskBlock(0, nodes, SplitStrategy(), 0.0), Draft(net, operator.segments[0], 2, nets.TINY))
    assert [call is torch.relu_ for call, _ in calls] == [False, True, False, False, False]
    assert [node for _, node in calls] == nodes
