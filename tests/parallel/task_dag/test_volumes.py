"""Nets for volumes in both layouts: every operator's numbers are those of the contiguous layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.kernels import by_channel
from bpt.nn.kernels.channels_last import channels_last, is_channels_last
from bpt.nn.layers.batch_norm import BatchNorm
from bpt.nn.layers.convolution import Convolution
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.task_dag.split_strategy import SplitKind
from tests.support import task_dag_nets as nets
from tests.support.net_cases import graph_in, read_net, with_inputs

CONTIGUOUS, LAST = pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST
ENGINES = pytest.mark.parametrize("engine", [CONTIGUOUS, LAST], ids=["contiguous", "last"])
SIZE = "dim: 2 dim: 7 dim: 9 dim: 5"
ALL_SORTS = (
    nets.convolution("stem", "x", "num_output: 6 kernel_size: 3 pad: 1 stride: 2 bias_term: false", relu=False)
    + nets.layer("BatchNorm", "stem", "stem")
    + nets.layer("Scale", "stem", "stem", "scale_param { bias_term: true }")
    + nets.layer("ReLU", "stem", "stem")
    + nets.layer("Pooling", "stem", "pool", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }")
    + nets.layer("Pooling", "stem", "average", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    + nets.layer("Eltwise", "pool average", "sum")
    + nets.convolution("query", "sum", "num_output: 2 kernel_size: 1", relu=False)
    + nets.convolution("key", "sum", "num_output: 2 kernel_size: 1 bias_term: false", relu=False)
    + nets.convolution("value", "sum", "num_output: 6 kernel_size: 1", relu=False)
    + nets.layer("Attention", "query key value", "attended")
    + nets.layer("Dropout", "attended", "attended")
    + nets.layer("Concat", "attended pool", "both")
    + nets.convolution("three", "both", "num_output: 4 kernel_size: 3 pad: 1 group: 2")
    + nets.fully_connected("score", "three", 5)
    + nets.LOSS
)


def statistics(net: Net) -> dict[str, Tensor]:
    """The blobs of BatchNorm layers."""
    norms = [(node.name, net.layer(node)) for node in net.graph.nodes]
    return {
        f"{name} {index}": blob.detach()
        for name, norm in norms
        if isinstance(norm, BatchNorm)
        for index, blob in enumerate(norm.blobs)
    }


def keep_channels_last(net: Net, patch: pytest.MonkeyPatch) -> None:
    """In float64, too: of that type torch makes contiguous tops, and ``by_channel`` leaves blobs to torch."""
    patch.setattr(by_channel, "applies", lambda x: True)
    for node in net.graph.nodes:
        if isinstance(found := net.layer(node), Convolution):
            found.register_forward_hook(lambda _, bottoms, top: channels_last(top))


@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("samples", [1, 5, 6])
@ENGINES
def test_all_sorts_of_layers(samples: int, double: bool, engine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nets.image_net(ALL_SORTS, samples, SIZE)
    plain = nets.net_of(graph)
    expected = nets.pass_over(Operator(plain), double, passes=2)
    for kind in (Operator, nets.dag_operator):
        net = nets.net_of(graph)
        if double and engine == LAST:
            keep_channels_last(net, monkeypatch)
        operator = kind(net, engine=engine)
        nets.assert_same(nets.pass_over(operator, double, passes=2), expected, 1e-11 if double else 1e-4)
        nets.assert_same(statistics(net), statistics(plain), 1e-12 if double else 1e-6)


def test_tasks_of_all_kinds() -> None:
    """What the test above is about: the convolutions of many samples and of one are split."""
    for samples, kind in ((6, SplitKind.SAMPLES), (1, SplitKind.AREAS)):
        operator = nets.dag_operator(nets.net_of(nets.image_net(ALL_SORTS, samples, SIZE)), engine=LAST)
        assert kind in {block.strategy.kind for block in nets.plan_of(operator).blocks}


def small_net() -> Net:
    """The small 3D-ResAttNet, all of whose attention counts."""
    shapes = {"data": (2, 1, 32, 32, 32), "label": (2,)}
    text = with_inputs(read_net("resattnet18_3d/train_val_small.prototxt"), pb.TRAIN, shapes)
    text.force_backward = False
    next(given for given in text.layer if given.name == "fc").inner_product_param.num_output = 4  # pass_over's labels
    net = Net(graph_in(text, pb.TRAIN), PassContext(seed=7))
    with torch.no_grad():
        for value in net.parameters():
            if value.dim() == 0:
                value.fill_(0.3)
    return net


@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
def test_an_iteration_of_the_small_resattnet(double: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 shows that the layouts compute the same; float32 rounds, and a ReLU at 0 makes much of a little."""
    plain, last = small_net(), small_net()
    expected = nets.pass_over(Operator(plain, engine=CONTIGUOUS), double)
    if double:
        keep_channels_last(last, monkeypatch)
    found = nets.pass_over(Operator(last, engine=LAST), double)
    assert all(float(value.abs().max()) > 0 for value in expected.values())
    nets.assert_same(found, expected, 1e-10 if double else 0.1)
    nets.assert_same(statistics(last), statistics(plain), 1e-13 if double else 1e-5)
    torch.testing.assert_close(found["loss"], expected["loss"])


def test_blobs_stay_channels_last() -> None:
    net = nets.net_of(nets.image_net(ALL_SORTS, 6, SIZE))
    node = next(node for node in net.graph.nodes if node.name == "stem")
    seen: list[bool] = []
    net.layer(node).register_forward_hook(
        lambda _, bottoms, top: seen.extend(is_channels_last(blob) for blob in (*bottoms, top))
    )
    nets.pass_over(Operator(net, engine=LAST), double=False)
    assert seen == [True, True]
