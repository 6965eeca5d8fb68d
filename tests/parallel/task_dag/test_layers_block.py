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
from tests.support.golden_cases import graph_of
from tests.support.task_dag_nets import (
    LOSS,
    TINY,
    assert_same,
    convolution,
    dag_operator,
    fully_connected,
    image_net,
    layer,
    net_of,
    pass_over,
)

POINT = "num_output: 4 kernel_size: 1"
WINDOW = "num_output: 4 kernel_size: 3 pad: 1"
PARAMS = "param { lr_mult: 0 } param { lr_mult: 0 } convolution_param"

CASES = {  # each reads "x" and ends in "z"
    "once": convolution("z", "x", WINDOW),
    "twice": convolution("z", "x", WINDOW) + layer("ReLU", "z", "z"),
    "slope": convolution("z", "x", WINDOW, relu=False) + layer("ReLU", "z", "z", "relu_param { negative_slope: 0.1 }"),
    "another blob": convolution("a", "x", WINDOW, relu=False) + layer("ReLU", "a", "z"),
    "read by others": convolution("a", "x", WINDOW, relu=False)
    + layer("ReLU", "a", "b")
    + layer("Eltwise", "a b", "z"),
    "loss": convolution("a", "x", WINDOW, relu=False).replace('top: "a"', 'top: "a" loss_weight: 0.1', 1)
    + layer("ReLU", "a", "z"),
    "frozen": convolution("z", "x", WINDOW).replace("convolution_param", PARAMS, 1),
    "diff kept back": convolution("a", "x", WINDOW, relu=False)
    + layer("ReLU", "a", "a", "propagate_down: false")
    + convolution("z", "a", POINT),
    "point": convolution("a", "x", POINT) + convolution("z", "a", POINT),
    "of rows": convolution("z", "x", "num_output: 9 kernel_size: 3 pad: 1 axis: 2"),
    "in front": layer("ReLU", "x", "x") + convolution("z", "x", WINDOW, relu=False),
}


@pytest.mark.parametrize("engine", [pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST])
@pytest.mark.parametrize("samples", [1, 5, 6])
@pytest.mark.parametrize("layers", CASES.values(), ids=CASES)
def test_the_numbers_of_the_layers(layers: str, samples: int, engine: int) -> None:
    graph = image_net(layers + fully_connected("score", "z", 5) + LOSS, samples)
    expected = pass_over(Operator(net_of(graph), engine=engine), passes=2)
    for grain in (TINY, 1.0):
        operator = dag_operator(net_of(graph), engine=engine, grain=grain)
        assert_same(pass_over(operator, passes=2), expected, 1e-12)


def test_diffs_of_the_inputs() -> None:
    text = f"""force_backward: true
        layer {{ name: "in" type: "Input" top: "x" top: "y"
        input_param {{ shape {{ dim: 6 dim: 3 dim: 9 dim: 8 }} shape {{ dim: 6 }} }} }}
        {convolution("first", "x", POINT)} {convolution("a", "first", WINDOW)} {fully_connected("score", "a", 5)}"""
    graph = graph_of(text + LOSS)
    engine = pb.SolverParameter.CHANNELS_LAST
    expected = pass_over(Operator(net_of(graph), engine=engine))
    assert any(name.startswith("diff") for name in expected)
    actual = pass_over(dag_operator(net_of(graph), engine=engine))
    assert_same(actual, expected, 1e-12)


def test_which_relu_overwrites() -> None:
    text = convolution("a", "x", WINDOW) + layer("ReLU", "a", "b") + layer("TanH", "b", "c") + layer("ReLU", "c", "d")
    net = net_of(image_net(text))
    nodes = list(net.graph.nodes[1:])
    operator = dag_operator(net)
    calls = calls_of(TaskBlock(0, nodes, SplitStrategy(), 0.0), Draft(net, operator.segments[0], 2, TINY))
    assert [call is torch.relu_ for call, _ in calls] == [False, True, False, False, False]
    assert [node for _, node in calls] == nodes
