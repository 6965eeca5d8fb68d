"""Mistakes in Python layers: what is told names the layer, and the file and line of the user's code."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from bpt.base.errors import RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from tests.nn.layers.written import CLASS, NN, Write, body, run_error
from tests.support.golden_cases import graph_of
from tests.support.one_layer import error_of, one_layer


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
        ("import caffe; caffe.oi\n", "AttributeError: module 'caffe' has no attribute 'oi'"),
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
            "forward() of L does not take 1 bottom (x0): too many positional arguments",
        ),
        (
            "    def forward(self, x, y):\n        return x\n",
            "forward(x, y) of L does not take 1 bottom (x0): missing a required argument: 'y'",
        ),
        ("    size = 3\n", "L has no forward, which makes the tops of the bottoms"),
        ("    def forward(self, x):\n        return 1\n", "L must return a tensor or a tuple of tensors, not int"),
        (
            "    def forward(self, x):\n        return x, [x]\n",
            "L must return a tensor or a tuple of tensors, not a tuple of Tensor, list",
        ),
        ("    def forward(self, x):\n        return x, x\n", "L returns 2 tensors, and 1 top is named"),
        ("    def forward(self, x):\n        pass\n", "L returns 0 tensors, and 1 top is named"),
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
    operator = Operator(net)
    operator.feed({net.graph.nodes[0].tops[0]: torch.ones(2)})
    operator.forward(0)
    with pytest.raises(RunError) as caught:
        operator.backward(0)
    assert str(caught.value).startswith('backward pass, layers "in" to "mine": ')
    assert str(caught.value).endswith(f"{module}.py:10: KeyError: 'no such key'")


@pytest.mark.parametrize(
    ("result", "which"),
    [
        ("x.detach() + y.detach()", '"ip" and "x"'),
        ("torch.from_numpy(x.detach().numpy()) * y", '"ip"'),
        ("self.w * x.detach() + y", '"ip"'),  # the top has a gradient, of the module's own
        ("x * 2 + y", ""),
        ("x + 0 * y.abs()", ""),
    ],
)
def test_a_cut_gradient_is_noticed_once(
    write: Write, result: str, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    init = "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(2))\n"
    module = write(f"{CLASS}{init}    def forward(self, x, y):\n        return {result}\n")
    inner = 'type: "InnerProduct" bottom: "in" inner_product_param { num_output: 2 weight_filler { type: "xavier" } }'
    text = f"""
        layer {{ name: "in" type: "Input" top: "in" input_param {{ shape {{ dim: 3 dim: 2 }} }} }}
        layer {{ name: "ip" top: "ip" {inner} }}
        layer {{ name: "x" top: "x" {inner} }}
        layer {{ name: "mine" bottom: "ip" bottom: "x" top: "y" {body(module)} loss_weight: 1 }}"""
    net = Net(graph_of(text))
    with caplog.at_level(logging.WARNING, "bpt"):
        with torch.no_grad():
            net(torch.zeros(3, 2))
        assert not caplog.messages
        for _ in range(2):
            net(torch.zeros(3, 2))
    told = [
        f'layer "mine": its top does not depend on bottom {which} for autograd, which cannot follow detach(), '
        "NumPy or whole numbers: nothing below learns from it (propagate_down: false declares this)"
    ]
    assert [message[message.index("layer ") :] for message in caplog.messages] == (told if which else [])


def test_a_gradient_that_is_cut_on_purpose_is_not_noticed(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    module = write(f"{CLASS}    def forward(self, x):\n        return x.detach()\n")
    text = f"""
        layer {{ name: "in" type: "Input" top: "in" input_param {{ shape {{ dim: 3 dim: 2 }} }} }}
        layer {{ name: "ip" top: "ip" type: "InnerProduct" bottom: "in" inner_product_param {{ num_output: 2 }} }}
        layer {{ name: "mine" bottom: "ip" top: "y" propagate_down: false {body(module)} loss_weight: 1 }}"""
    with caplog.at_level(logging.WARNING, "bpt"):
        Net(graph_of(text))(torch.zeros(3, 2))
        Net(graph_of(text.replace("propagate_down: false", ""), pb.TEST))(torch.zeros(3, 2))
    assert not caplog.messages
