"""Python layers: modules of PyTorch and layers written for pycaffe, and how mistakes in them are told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import bpt
from bpt.context import RunContext
from bpt.errors import LayerError, RunError
from bpt.layers import LAYERS, Layer
from bpt.net import Net
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from tests.golden_cases import graph_of
from tests.gradient_checker import check_gradients
from tests.one_layer import error_of, flops_of, one_layer, one_layer_graph, shapes_of, tops_of

Write = Callable[[str], str]
NUMBERS = count()
NN = "import torch\nfrom torch import nn\n"
CLASS = NN + "class L(nn.Module):\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the working folder and returns its name, which is new."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(code: str) -> str:
        name = f"written_layers_{next(NUMBERS)}"
        Path(f"{name}.py").write_text(dedent(code))
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("written_layers_"):
            del sys.modules[name]


def body(module: str, layer: str = "L", more: str = "") -> str:
    return f'type: "Python" python_param {{ module: "{module}" layer: "{layer}" {more} }}'


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
        layer = one_layer(body("tests.layers.own_layers", "Gate", settings), (2, 4, 1, 1), context=RunContext(seed))
        return layer.blobs[0].detach()

    state = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(state, torch.get_rng_state())
    assert 0 < float(weights(1).abs().max()) < 9


def test_gradients() -> None:
    check_gradients(body("tests.layers.own_layers", "Gate", 'param_str: "2"'), (3, 2, 2, 1))


SHARED = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 1 dim: 1 } } }
layer { name: "a" type: "Python" bottom: "x" top: "a" param { name: "w" lr_mult: 3 }
        python_param { module: "tests.layers.own_layers" layer: "Gate" } }
layer { name: "b" type: "Python" bottom: "a" top: "b" param { name: "w" } loss_weight: 2
        python_param { module: "tests.layers.own_layers" layer: "Gate" } }
"""


def test_parameters_are_shared_by_name_and_with_a_test_net() -> None:
    graph = graph_of(SHARED)
    assert [param.lr_mult for param in graph.learnable] == [3]
    net = Net(graph, RunContext(seed=5))
    (weight,) = net.parameters()
    alone = one_layer(body("tests.layers.own_layers", "Gate"), (2, 4, 1, 1), context=RunContext(5))
    alone.blobs[0].data.copy_(weight)
    x = torch.rand(2, 4, 1, 1)
    torch.testing.assert_close(net(x), alone(alone(x)))
    with torch.no_grad():
        weight.fill_(7)
    tested = Net(graph_of(SHARED, pb.TEST), RunContext(seed=5), net.values_by_name())
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
    plain.running_var.fill_(4)
    torch.testing.assert_close(layer.eval()(x), plain.eval()(x))


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


EUCLIDEAN = """
import caffe
import numpy as np

class L(caffe.Layer):
    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("Need two inputs to compute distance.")
        self.weight = float(self.param_str or 1)
        assert self.param_str_ == self.param_str

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("Inputs must have the same dimension.")
        self.diff = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = self.weight * np.sum(self.diff ** 2) / bottom[0].num / 2.

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if not propagate_down[i]:
                continue
            sign = 1 if i == 0 else -1
            bottom[i].diff[...] = top[0].diff * self.weight * sign * self.diff / bottom[i].num
"""


def test_a_layer_of_pycaffe(write: Write) -> None:
    module = write(EUCLIDEAN)
    text = """
        layer { name: "in" type: "Input" top: "x" top: "y"
                 input_param { shape { dim: 3 dim: 2 } shape { dim: 3 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
                 inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
        layer { name: "loss" bottom: "ip" bottom: "y" top: "loss" """
    own = Net(graph_of(text + body(module, more='param_str: "2"') + " loss_weight: 3 }"), RunContext(1))
    caffes = Net(graph_of(text + 'type: "EuclideanLoss" loss_weight: 6 }'), RunContext(1))
    x, y = torch.rand(2, 3, 2)
    for _ in range(2):
        loss = own(x, y)
        assert loss.shape == (1,)
        torch.testing.assert_close(loss, 2 * caffes(x, y).reshape(1))
        own.zero_grad()
        caffes.zero_grad()
        (3 * loss).sum().backward()
        (6 * caffes(x, y)).backward()
        for ours, theirs in zip(own.parameters(), caffes.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert "caffe" not in sys.modules


BLOBS = """
import caffe
class L(caffe.Layer):
    def setup(self, bottom, top):
        self.shapes = []
        top[1].reshape(2, 2)
    def reshape(self, bottom, top):
        assert (bottom[0].num, bottom[0].channels, bottom[0].height, bottom[0].width) == (*bottom[0].shape, 1, 1)[:4]
        top[0].reshape(*bottom[0].shape)
        self.shapes.append(bottom[0].data.shape)
    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data ** 2
        top[1].data[0, 0] += 1 if self.phase == caffe_phase else 10
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 2 * bottom[0].data * top[0].diff
caffe_phase = caffe.TRAIN
"""


def test_blobs_of_pycaffe(write: Write) -> None:
    text = body(write(BLOBS))
    layer = one_layer(text, (2, 3), tops=2)
    for samples in (2, 5):
        x = torch.rand(samples, 3, dtype=torch.float64).requires_grad_()
        square, count = layer(x)
        assert torch.equal(square, x**2)
    assert count[0, 0] == 2  # tops stay from pass to pass
    assert one_layer(text, (2, 3), tops=2, phase=pb.TEST)(x)[1][0, 0] == 10
    square.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x)


def test_only_the_last_pass_of_pycaffe_goes_back(write: Write) -> None:
    layer = one_layer(body(write(BLOBS)), (2, 3), tops=2)
    first, _ = layer(torch.rand(2, 3, requires_grad=True))
    layer(torch.rand(2, 3, requires_grad=True))
    with pytest.raises(RunError, match="remembers its last forward pass only"):
        first.sum().backward()


def run_error(layer: Layer, *bottoms: torch.Tensor) -> str:
    with pytest.raises(RunError) as caught:
        layer(*bottoms)
    return str(caught.value)


def test_mistakes_of_pycaffe_layers(write: Write) -> None:
    start = "import caffe\nclass L(caffe.Layer):\n"
    ready = start + "    def setup(self, bottom, top): pass\n    def reshape(self, bottom, top): top[0].reshape(1)\n"
    module = write(
        start + "    def setup(self, b, t):\n        self.blobs.add_blob(3)\n    reshape = forward = setup\n"
    )
    assert error_of(body(module), (2,)) == (
        f"setup of L: {Path.cwd()}/{module}.py:4: NotImplementedError: self.blobs.add_blob: bpt trains the parameters "
        "of a torch.nn.Module; write the layer as one"
    )
    module = write(ready + "    def forward(self, bottom, top):\n        bottom[0].data[...] = 0\n")
    message = run_error(one_layer(body(module), (2,)), torch.ones(2))
    assert message == (
        f'layer "L": forward of L: {Path.cwd()}/{module}.py:6: ValueError: assignment destination is read-only'
    )
    module = write(ready + "    def forward(self, bottom, top): pass\n")
    top = one_layer(body(module), (2,))(torch.ones(2, requires_grad=True))
    with pytest.raises(RunError) as caught:
        top.sum().backward()
    assert str(caught.value) == "layer \"L\": backward of L: AttributeError: 'L' object has no attribute 'backward'"
    inputs = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
    text = f'{inputs} layer {{ name: "L" bottom: "x" top: "x" {body(module)} }}'
    with pytest.raises(LayerError, match="a layer written for pycaffe cannot work in place"):
        graph_of(text)


def test_beside_the_nets_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nets"
    folder.mkdir()
    name = f"written_layers_{next(NUMBERS)}"
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


def test_what_is_not_found(write: Write) -> None:
    module = write(NN + "class Gate(nn.Module): pass\nclass Other: pass\nnumber = 3\n")
    here = Path.cwd()
    (here / "very_special.py").touch()
    for text, message in [
        (body("vary_special"), f'no module "vary_special" in PYTHONPATH, {here}; did you mean "very_special"?'),
        (body(".zzz"), 'module is a name as Python imports it ("my_layers"), not ".zzz"'),
        (body("builtins", "Int"), 'module "builtins" has no class "Int"; did you mean "int"?'),
        (body("zzz.yyy"), f'no module "zzz.yyy" in PYTHONPATH, {here}'),
        (body(f"{module}.py"), f'no module "{module}.py" in PYTHONPATH, {here}; did you mean "{module}"?'),
        (body(module, "Gatte"), f'{here}/{module}.py has no class "Gatte"; did you mean "Gate"?'),
        (body(module, "qqqqqq"), f'{here}/{module}.py has no class "qqqqqq"'),
        (body(module, "number"), f'"number" of {here}/{module}.py is not a class'),
        (
            body(module, "Other"),
            "Other is neither a torch.nn.Module nor a layer as of pycaffe, with setup, reshape and forward",
        ),
        ('type: "Python" python_param { layer: "L" }', "needs python_param { module }"),
        ('type: "Python"', "needs python_param { module }"),
        (body(module, ""), "needs python_param { layer }"),
    ]:
        assert error_of(text, (2, 3)) == message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def f(:\n", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import caffe; caffe.io\n", "AttributeError: module 'caffe' has no attribute 'io'"),
    ],
)
def test_a_module_that_fails_when_imported(write: Write, code: str, message: str) -> None:
    module = write("\n" + code)
    assert error_of(body(module), (2,)) == (
        f'module "{module}" fails when imported: {Path.cwd()}/{module}.py:2: {message}'
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "    def __init__(self):\n        super().__init__()\n        self.x = nn.Linear(2)\n",
            "__init__ of L: §:6: TypeError: Linear.__init__() missing 1 required positional argument: 'out_features'",
        ),
        (
            "    def __init__(self, size):\n        super().__init__()\n",
            "__init__ of L: TypeError: L.__init__() missing 1 required positional argument: 'size'",
        ),
        (
            "    def forward(self, x):\n        return x.reshap(2)\n",
            "forward of L: §:5: AttributeError: 'Tensor' object has no attribute 'reshap'",
        ),
        (
            "    def forward(self):\n        return 1\n",
            "forward of L: TypeError: L.forward() takes 1 positional argument but 2 were given",
        ),
        ("    def forward(self, x):\n        return 1\n", "L must return a tensor or a tuple of tensors, not int"),
        (
            "    def forward(self, x):\n        return x, [x]\n",
            "L must return a tensor or a tuple of tensors, not a tuple of Tensor, list",
        ),
        ("    def forward(self, x):\n        return x, x\n", "L returns 2 tensors, and 1 tops are named"),
        ("    def forward(self, x):\n        pass\n", "L returns 0 tensors, and 1 tops are named"),
        (
            "    def forward(self, x):\n        return x.relu_()\n",
            "changes its bottom in place; other layers may read it",
        ),
        (
            "    def __init__(self):\n        super().__init__()\n        self.x = nn.LazyLinear(2)\n",
            "L has lazy parameters; give the sizes of its bottoms in param_str",
        ),
    ],
)
def test_mistakes_in_a_module(write: Write, code: str, message: str) -> None:
    module = write(CLASS + code)
    assert error_of(body(module), (2, 3)) == message.replace("§", f"{Path.cwd()}/{module}.py")


def test_mistakes_while_running(write: Write) -> None:
    module = write(
        CLASS + "    def forward(self, x):\n        if x.sum() > 1:\n            return {}['key']\n        return x\n"
    )
    layer = one_layer(body(module), (2,))
    assert layer(torch.zeros(2)).tolist() == [0, 0]
    assert run_error(layer, torch.ones(2)) == f"layer \"L\": forward of L: {Path.cwd()}/{module}.py:6: KeyError: 'key'"


def test_mixes_samples(write: Write) -> None:
    code = "class Mean(nn.Module):\n    def forward(self, x):\n        return x.mean()\n"
    module = write(NN + code + "class Source(nn.Module):\n    def forward(self):\n        return torch.ones(2)\n")

    def reason(text: str, *shapes: tuple[int, ...]) -> str:
        layer = one_layer(text, *shapes)
        return layer.mixes_samples(layer.spec, shapes)

    gate = body("tests.layers.own_layers", "Gate")
    assert reason(gate, (2, 4, 1, 1)) == ""
    assert reason(body("tests.layers.own_layers", "Gate", "share_in_parallel: true"), (2, 4, 1, 1)) == (
        "share_in_parallel asks for one object for all ranks"
    )
    assert reason(body(module, "Mean"), (2, 3)) == (
        'its top "y0" () is not one of samples, and only Mean knows how to make it of all of them'
    )
    (source,) = graph_of(f'layer {{ name: "L" top: "x" {body(module, "Source")} }}').nodes
    assert LAYERS["Python"].mixes_samples(source.spec, []) == "a Python layer without bottoms makes whole batches"


def test_flops() -> None:
    assert flops_of(body("tests.layers.own_layers", "Gate"), (2, 4, 3, 1)) == 24


def test_a_mistake_in_a_users_own_backward_names_layer_and_line(write: Write) -> None:
    """It was told as a bug in bpt, with a traceback, if it was no RuntimeError."""
    module = write(
        NN
        + """
class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, d):
        return {}["no such key"]
class L(nn.Module):
    def forward(self, x):
        return Broken.apply(x)
"""
    )
    net = Net(
        graph_of(
            f"""force_backward: true layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 }} }} }}
            layer {{ name: "mine" bottom: "x" top: "y" loss_weight: 1 {body(module)} }}"""
        )
    )
    operator = LocalOperator(net)
    operator.feed({net.graph.nodes[0].tops[0]: torch.ones(2)})
    operator.forward(0)
    with pytest.raises(RunError) as caught:
        operator.backward(0)
    assert str(caught.value).startswith('backward pass, layers "in" to "mine": ')
    assert str(caught.value).endswith(f"{module}.py:10: KeyError: 'no such key'")
