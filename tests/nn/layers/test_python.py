"""Python layers that are modules of PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import bpt
from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from bpt.nn.pass_context import CurrentPass, PassContext
from tests.nn.layers.written import CLASS, NN, Write, body
from tests.support.golden_cases import graph_of
from tests.support.one_layer import one_layer, one_layer_graph, shapes_of, tops_of

TWO = (
    NN
    + """
class L(nn.Module):
    def __init__(self, param_str):
        super().__init__()
        self.late = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor(float(param_str)))
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x, y):
        return self.late(x * self.scale) + self.fixed, (x + y).argmax(1)
"""
)


def test_a_module(write: Write) -> None:
    text = body(write(TWO), more='param_str: "2.5"')
    graph = one_layer_graph(text, (4, 3), (4, 3), tops=2)
    assert [graph.edges[top].shape for top in graph.nodes[-1].tops] == [(4, 2), (4,)]
    assert [param.shape for param in graph.params] == [(), (2,), (2, 3), (2,)]  # as parameters() has them
    layer = one_layer(text, (4, 3), (4, 3), tops=2)
    scale, fixed, weight, bias = layer.blobs
    assert scale.item() == 2.5
    assert [blob.requires_grad for blob in layer.blobs] == [True, False, True, True]
    x, y = torch.rand(2, 4, 3)
    first, second = layer(x, y)
    torch.testing.assert_close(first, 2.5 * x @ weight.t() + bias + fixed)
    assert torch.equal(second, (x + y).argmax(1).float())
    (gradient,) = torch.autograd.grad(first.sum(), scale)
    torch.testing.assert_close(gradient, (x @ weight.t()).sum())


def test_one_that_looks_at_values_is_run_on_zeros(write: Write) -> None:
    module = write(NN + "class L(nn.Module):\n    def forward(self, x):\n        return x[: 2 + int(x.sum())]\n")
    assert shapes_of(body(module), (4, 3)) == ((2, 3),)


def test_param_str_as_an_attribute(write: Write) -> None:
    module = write(NN + "class L(nn.Module):\n    def forward(self, x):\n        return x * float(self.param_str)\n")
    layer = one_layer(body(module, more='param_str: "3"'), (2,))
    assert layer(torch.ones(2)).tolist() == [3, 3]


def test_first_values_are_the_modules_and_the_seeds() -> None:
    def weights(seed: int, settings: str = "") -> torch.Tensor:
        layer = one_layer(body("tests.support.own_layers", "Gate", settings), (2, 4, 1, 1), context=PassContext(seed))
        first: torch.Tensor = layer.blobs[0].detach()
        return first

    state = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(state, torch.get_rng_state())
    assert 0 < float(weights(1).abs().max()) < 9


SHARED = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 1 dim: 1 } } }
layer { name: "a" type: "Python" bottom: "x" top: "a" param { name: "w" lr_mult: 3 }
        python_param { module: "tests.support.own_layers" layer: "Gate" } }
layer { name: "b" type: "Python" bottom: "a" top: "b" param { name: "w" } loss_weight: 2
        python_param { module: "tests.support.own_layers" layer: "Gate" } }
"""


def test_parameters_are_shared_by_name_and_with_a_test_net() -> None:
    graph = graph_of(SHARED)
    assert [param.lr_mult for param in graph.learnable] == [3]
    net = Net(graph, PassContext(seed=5))
    (weight,) = net.parameters()
    alone = one_layer(body("tests.support.own_layers", "Gate"), (2, 4, 1, 1), context=PassContext(5))
    alone.blobs[0].data.copy_(weight)
    x = torch.rand(2, 4, 1, 1)
    torch.testing.assert_close(net(x), alone(alone(x)))
    with torch.no_grad():
        weight.fill_(7)
    tested = Net(graph_of(SHARED, pb.TEST), PassContext(seed=5), net.values_by_name())
    assert float(weight.detach().min()) == 7  # not the module's first values again
    torch.testing.assert_close(tested(x), net(x))


def test_a_parameter_of_another_shape_is_not_shared(write: Write) -> None:
    flat = write(
        CLASS
        + "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(4))\n"
        + "    def forward(self, x):\n        return x + self.w.sum()\n"
    )
    text = f"""{SHARED}
        layer {{ name: "c" bottom: "b" top: "c" param {{ name: "w" share_mode: PERMISSIVE }} {body(flat)} }}"""
    with pytest.raises(LayerError) as caught:
        Net(graph_of(text))
    assert str(caught.value) == 'layer "c": shares a parameter of shape (4, 1, 1), its own has (4,)'


def test_buffers_are_blobs_that_are_not_trained(write: Write) -> None:
    module = write(NN + "class L(nn.BatchNorm1d):\n    def __init__(self):\n        super().__init__(3)\n")
    layer = one_layer(body(module), (8, 3)).double()
    assert [tuple(blob.shape) for blob in layer.blobs] == [(3,), (3,), (3,), (3,), ()]
    assert [blob.requires_grad for blob in layer.blobs] == [True, True, False, False, False]
    plain = torch.nn.BatchNorm1d(3).double()
    x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0)).double()
    for _ in range(2):
        torch.testing.assert_close(layer(x), plain(x))
    torch.testing.assert_close(layer.blobs[2].detach(), plain.running_mean)
    assert float(layer.blobs[4]) == 2
    with torch.no_grad():
        layer.blobs[3].fill_(4)  # as a snapshot does
    assert plain.running_var is not None
    plain.running_var.fill_(4)
    torch.testing.assert_close(layer.eval()(x), plain.eval()(x))


def test_what_is_drawn_in_training_comes_from_the_run(write: Write) -> None:
    module = write(NN + "class L(nn.Dropout):\n    pass\n")
    x = torch.ones(2, 40)

    def masks(seed: int, *iterations: int) -> list[list[list[float]]]:
        context = PassContext(seed)
        layer = one_layer(body(module), (2, 40), context=context)
        tops = []
        for iteration in iterations:
            layer.follow(CurrentPass(replace(context, iteration=iteration)))
            tops.append(layer(x).tolist())
        return tops

    state = torch.get_rng_state()
    first, second = masks(1, 0, 1)
    assert masks(1, 1) == [second]  # as after resuming
    assert first not in (second, *masks(2, 0))
    assert torch.equal(state, torch.get_rng_state())


def test_a_recurrent_module_is_trained(write: Write) -> None:
    # nn.LSTM keeps its parameters in a list of its own, too.
    module = write(
        NN
        + "class L(nn.LSTM):\n    def __init__(self):\n        super().__init__(2, 3)\n"
        + "    def forward(self, x):\n        return super().forward(x)[0]\n"
    )
    layer = one_layer(body(module), (4, 1, 2))
    x = torch.rand(4, 1, 2)
    before = layer(x).detach()
    layer(x).sum().backward()
    assert all(bool(blob.grad.any()) for blob in layer.blobs)
    with torch.no_grad():
        layer.blobs[0].add_(1)
    assert not torch.equal(layer(x), before)


def test_no_bottoms_and_no_tops(write: Write) -> None:
    module = write(
        NN
        + "class Source(nn.Module):\n    def forward(self):\n        return torch.ones(2, 3)\n"
        + "class Sink(nn.Module):\n    def forward(self, x):\n        self.seen = x\n"
    )
    layer = one_layer(body(module, "Sink"), (2, 3), tops=0)
    assert tops_of(layer, torch.ones(2, 3)) == ()
    source = Net(graph_of(f'layer {{ name: "L" top: "x" {body(module, "Source")} }}'))
    assert source().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_beside_the_nets_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nets"
    folder.mkdir()
    name = "written_layers_beside"
    helper = write("factor = 3")
    net = f"""
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 }} }} }}
        layer {{ name: "L" bottom: "x" top: "y" {body(name)} }}"""
    (folder / "net.prototxt").write_text(net)
    (folder / f"{name}.py").write_text(
        NN + f"import {helper}\nclass L(nn.Module):\n    def forward(self, x):\n        return x * {helper}.factor\n"
    )
    made = bpt.Net("nets/net.prototxt", bpt.TEST)
    made.blobs["x"].data[...] = 2
    assert made.forward()["y"].tolist() == [6, 6]
    # A net elsewhere has a file of the same name: Python would go on with the first one.
    other = tmp_path / "others"
    other.mkdir()
    (other / "net.prototxt").write_text(net)
    (other / f"{name}.py").write_text("")
    with pytest.raises(LayerError) as caught:
        bpt.Net("others/net.prototxt", bpt.TEST)
    assert str(caught.value) == (
        f'others/net.prototxt:3:78: layer "L": {other}/{name}.py is not what Python finds as "{name}", which is '
        f"{folder}/{name}.py; give the file a name of its own"
    )


def test_mixes_samples(write: Write) -> None:
    code = "class Mean(nn.Module):\n    def forward(self, x):\n        return x.mean()\n"
    module = write(NN + code + "class Source(nn.Module):\n    def forward(self):\n        return torch.ones(2)\n")

    def reason(text: str, *shapes: tuple[int, ...]) -> str:
        layer = one_layer(text, *shapes)
        return layer.mixes_samples(layer.spec, shapes)

    gate = body("tests.support.own_layers", "Gate")
    assert reason(gate, (2, 4, 1, 1)) == ""
    assert reason(body("tests.support.own_layers", "Gate", "share_in_parallel: true"), (2, 4, 1, 1)) == (
        "share_in_parallel asks for one object for all ranks"
    )
    assert reason(body(module, "Mean"), (2, 3)) == (
        'its top "y0" () is not one of samples, and only Mean knows how to make it of all of them'
    )
    (source,) = graph_of(f'layer {{ name: "L" top: "x" {body(module, "Source")} }}').nodes
    assert LAYERS["Python"].mixes_samples(source.spec, []) == "a Python layer without bottoms makes whole batches"
