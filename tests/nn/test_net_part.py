"""Nets of which a rank holds a part: layers that are elsewhere, and slices of parameters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.gradients import learnable_params
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import BlobSlice, Part, slice_bounds
from bpt.nn.net import Net, RemoteLayer
from bpt.nn.pass_context import PassContext
from tests.nn.summed_nets import inner_product, inputs, summed
from tests.support.golden_cases import graph_of
from tests.support.lmdbs import write_images

NET = (
    inputs(4, 3)
    + inner_product("a", "x", 5, "", 'bias_filler { type: "uniform" }').replace("bias_term: false", "")
    + inner_product("b", "a", 7, "", 'transpose: true bias_filler { type: "uniform" }').replace("bias_term: false", "")
    + summed("b")
)
SPLIT = {2: 1, 3: 0}  # layer "b": Param.index → axis


def parts_of(graph: LayerGraph, shards: int) -> list[Part]:
    bounds = slice_bounds(7, shards)
    return [Part(None, {index: BlobSlice(axis, *cut) for index, axis in SPLIT.items()}) for cut in bounds]


def cut(values: torch.Tensor, part: Part, index: int) -> torch.Tensor:
    own = part.slices.get(index)
    return values if own is None else values[own.index(values.dim())]


@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_slices_are_those_of_the_whole_net(shards: int) -> None:
    graph = graph_of(NET)
    whole = Net(graph, PassContext(seed=3))
    for part in parts_of(graph, shards):
        net = Net(graph, PassContext(seed=3), part=part)
        assert net.local_params == graph.learnable
        for param in graph.params:
            assert torch.equal(net.value(param), cut(whole.value(param), part, param.index))
            assert net.value(param).shape == part.shape_of(param)
            assert net.value(param).requires_grad


def test_a_sliced_layer_computes_its_outputs() -> None:
    graph = graph_of(NET)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    node = graph.nodes[graph.index_of["b"]]
    whole = Net(graph).layer(node)(x)
    assert whole.shape == (4, 7)
    tops = [Net(graph, part=part).layer(node)(x) for part in parts_of(graph, 3)]
    assert [tuple(top.shape) for top in tops] == [(4, 3), (4, 2), (4, 2)]
    torch.testing.assert_close(torch.cat(tops, 1), whole)


def test_layers_that_are_elsewhere_have_no_parameters() -> None:
    graph = graph_of(NET)
    net = Net(graph, PassContext(seed=3), part=Part(frozenset({2}), {3: BlobSlice(0, 0, 4)}))
    assert [type(layer) is RemoteLayer for layer in net.layers] == [True, True, False, True]
    assert [net.holds(param) for param in graph.params] == [False, False, True, True]
    assert net.local_params == graph.params[2:]
    assert [tuple(parameter.shape) for parameter in net.parameters()] == [(5, 7), (4,)]
    assert list(net.values_by_name()) == [("b", 0), ("b", 1)]
    assert [param.name for param in learnable_params(net)] == ["b/0", "b/1"]
    with pytest.raises(KeyError):
        net.value(graph.params[0])
    with pytest.raises(AssertionError, match='layer "a" is not run on this rank'):
        net.layer(graph.nodes[1])(torch.zeros(4, 3))


def test_data_are_not_opened_by_ranks_that_do_not_run_their_layer(tmp_path: Path) -> None:
    path = write_images(tmp_path / "lmdb", [np.zeros((1, 2, 2), np.uint8)])
    text = f"""layer {{ name: "data" type: "Data" top: "x" data_param {{ source: "{path}" batch_size: 2 }} }}
        {inner_product("a", "x", 5, "")}"""
    graph = graph_of(text)
    shutil.rmtree(path)
    net = Net(graph, part=Part(frozenset({1})))
    assert net.data_layers() == {}
    net.close()


def test_a_test_net_uses_the_slices_of_the_train_net() -> None:
    graph = graph_of(NET)
    part = parts_of(graph, 2)[1]
    train = Net(graph, PassContext(seed=1), part=part)
    test = Net(graph_of(NET, pb.TEST), PassContext(seed=2), train.values_by_name(), part)
    assert [id(p) for p in test.parameters()] == [id(p) for p in train.parameters()]
    with pytest.raises(LayerError) as caught:
        Net(graph_of(NET, pb.TEST), shared=train.values_by_name(), part=parts_of(graph, 2)[0])
    assert str(caught.value) == (
        'layer "b": parameter 0 has shape (5, 4), but the net that shares its parameters has (5, 3)'
    )


SHARING = inputs(4, 3) + inner_product("a", "x", 3, 'name: "w"') + inner_product("b", "a", 3, 'name: "w"')


@pytest.mark.parametrize(
    "part",
    [Part(frozenset({0, 2})), Part(None, {0: BlobSlice(0, 0, 2)}), Part(None, {1: BlobSlice(0, 0, 2)})],
    ids=["owner elsewhere", "owner sliced", "sharer sliced"],
)
def test_a_parameter_shared_with_a_layer_on_other_ranks(part: Part) -> None:
    with pytest.raises(LayerError) as caught:
        Net(graph_of(SHARING), part=part)
    assert str(caught.value) == (
        'layer "b": shares parameter 0 with layer "a", which runs on other ranks; set parallel_param { mode: DATA } '
        "for both"
    )


def test_slices_can_be_shared() -> None:
    own = BlobSlice(0, 1, 3)
    net = Net(graph_of(SHARING), part=Part(None, {0: own, 1: own}))
    first, second = (net.value(param) for param in net.graph.params)
    assert first is second
    assert first.shape == (2, 3)


def test_reshape_keeps_the_part() -> None:
    graph = graph_of(NET)
    net = Net(graph, part=parts_of(graph, 2)[0])
    assert net.layer(graph.nodes[1]).samples == 4
    again = graph_of(NET, input_shapes={"x": (9, 3)})
    net.reshape(again)
    assert net.local_params == again.learnable
    assert net.layer(graph.nodes[1]).samples == 9


# What a rank has of a layer of 128 MiB, of which it holds an eighth: 16 MiB of weights, and while it trains as much
# of gradients and of momentum.
MEMORY = """
import json
import torch
from bpt.graph.part import BlobSlice, Part
from bpt.nn.net import Net
from bpt.engine.optim.rules import make_rule
from tests.support.golden_cases import graph_of
from tests.support.training import solver_of

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

def reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

def grown(axis, transpose):
    graph = graph_of(f'''
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 1 dim: 4096 }} }} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {{ num_output: 8192
          transpose: {transpose} bias_term: false weight_filler {{ type: "xavier" }} }} }}''')
    part = Part(None, {0: BlobSlice(axis, 1024, 2048)})
    solver = solver_of('type: "SGD" momentum: 0.9 base_lr: 0.1 lr_policy: "fixed"')
    reset()
    before = peak()
    net = Net(graph, part=part)
    made = peak() - before
    rule = make_rule(solver.optim, net)
    net.layers[1](torch.ones(1, 4096)).sum().backward()
    rule.update(0.1, 0)
    return made, peak() - before

print(json.dumps([grown(0, "false"), grown(1, "true")]))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures with Linux's /proc")
def test_no_rank_ever_allocates_the_whole_layer() -> None:
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    for made, trained in json.loads(run.stdout):
        assert 15 < made < 24  # MiB
        assert 45 < trained < 80
