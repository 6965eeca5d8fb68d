"""Python layers written for pycaffe: what they see is what pycaffe shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bpt
from bpt.base.errors import LayerError, RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.nn.layers.written import Write, body, run_error
from tests.support.golden_cases import graph_of
from tests.support.one_layer import error_of, one_layer

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
    own = Net(graph_of(text + body(module, more='param_str: "2"') + " loss_weight: 3 }"), PassContext(1))
    caffes = Net(graph_of(text + 'type: "EuclideanLoss" loss_weight: 6 }'), PassContext(1))
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


def test_mistakes_of_pycaffe_layers(write: Write) -> None:
    start = "import caffe\nclass L(caffe.Layer):\n"
    ready = start + "    def setup(self, bottom, top): pass\n    def reshape(self, bottom, top): top[0].reshape(1)\n"
    module = write(start + "    def setup(self, b, t): pass\n")
    error = "AttributeError: 'L' object has no attribute 'reshape'"
    assert error_of(body(module), (2,)) == f"reshape of L: {error}"
    module = write(ready + "    def forward(self, bottom, top):\n        bottom[0].data[...] = 0\n")
    message = run_error(one_layer(body(module), (2,)), torch.ones(2))
    assert message == (
        f'layer "L": forward of L: {Path.cwd()}/{module}.py:6: ValueError: assignment destination is read-only'
    )
    module = write(ready + "    def forward(self, bottom, top): pass\n")
    top = one_layer(body(module), (2,))(torch.ones(2, requires_grad=True))
    with pytest.raises(RunError) as caught:
        top.sum().backward()
    assert str(caught.value) == 'layer "L": L has no backward'
    inputs = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
    text = f'{inputs} layer {{ name: "L" bottom: "x" top: "x" {body(module)} }}'
    with pytest.raises(LayerError, match="a layer written for pycaffe cannot work in place"):
        graph_of(text)


def test_a_layer_without_backward_cannot_be_trained_through(write: Write) -> None:
    """It was told in the first backward pass, without a place."""
    module = write(
        "import caffe\nclass L(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = bottom[0].data\n"
    )
    text = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
                 inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
        layer { name: "L" bottom: "ip" top: "y" """
    loss = 'layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }'
    with pytest.raises(LayerError) as caught:
        graph_of(f"{text}{body(module)} }}\n{loss}")
    assert str(caught.value).endswith(
        'layer "L": L has no backward, but the layers that make bottom "ip" learn through it; write one, or set '
        "propagate_down: false"
    )
    for fits in (
        f"{text}propagate_down: false {body(module)} }}\n{loss}",
        f"{text}{body(module)} }}",  # no loss follows
        f"force_backward: true {text}{body(module)} }}\n{loss}",  # perhaps nothing goes backward
    ):
        graph_of(fits)
    graph_of(f"{text}{body(module)} }}\n{loss}", pb.TEST)


def test_mistakes_are_told_of_what_was_called(write: Write) -> None:
    """Those in __init__ and reshape were told as of setup, in a run as of forward."""
    start = "import caffe\nclass L(caffe.Layer):\n"
    rest = "    def forward(self, bottom, top): pass\n"
    init = "    def __init__(self): 1 / 0\n    def setup(self, bottom, top): pass\n    reshape = setup\n"
    module = write(start + init + rest)
    division = "ZeroDivisionError: division by zero"
    assert error_of(body(module), (2,)) == f"__init__ of L: {Path.cwd()}/{module}.py:3: {division}"
    reshape = "    def setup(self, bottom, top): pass\n    def reshape(self, bottom, top): 1 / 0\n"
    module = write(start + reshape + rest)
    assert error_of(body(module), (2,)) == f"reshape of L: {Path.cwd()}/{module}.py:4: {division}"
    module = write(start + reshape.replace("1 / 0", "1 / (bottom[0].num - 3); top[0].reshape(1)") + rest)
    layer = one_layer(body(module), (2,))
    assert run_error(layer, torch.ones(3)) == f'layer "L": reshape of L: {Path.cwd()}/{module}.py:4: {division}'


def test_reshape_like(write: Write) -> None:
    module = write(BLOBS.replace("top[0].reshape(*bottom[0].shape)", "top[0].reshape_like(bottom[0])"))
    x = torch.rand(5, 3)
    assert torch.equal(one_layer(body(module), (2, 3), tops=2)(x)[0], x**2)


SCALE = """
import caffe
import numpy as np

class L(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(bottom[0].channels)
        self.blobs.add_blob(*self.blobs[0].shape)
        self.blobs[0].data[...] = 0.5
        assert (len(self.blobs), self.blobs[0].count, self.blobs[1].shape) == (2, bottom[0].channels, (3,))

    def reshape(self, bottom, top):
        top[0].reshape_like(bottom[0])

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data + self.blobs[1].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff * self.blobs[0].data
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum(0)
        self.blobs[1].diff[...] = top[0].diff.sum(0)
"""


def test_parameters_of_pycaffe(write: Write, tmp_path: Path) -> None:
    """A scale and a bias: trained, saved, loaded and shared as those of any layer; refused until now."""
    text = """
        layer { name: "in" type: "Input" top: "x" top: "y"
                 input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } } }
        layer { name: "scale" bottom: "x" top: "s" param { lr_mult: 2 name: "w" } param { lr_mult: 1 } %s }
        layer { name: "again" bottom: "s" top: "a" param { lr_mult: 2 name: "w" } param { lr_mult: 1 } %s }
        layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "y" top: "loss" }"""
    (tmp_path / "own.prototxt").write_text(text % (own := body(write(SCALE)), own))
    half = "filler { type: 'constant' value: 0.5 }"
    scale = f'type: "Scale" scale_param {{ {half} bias_term: true }}'
    (tmp_path / "caffes.prototxt").write_text(text % (scale, scale))
    solver = 'base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 3 iter_size: 2 random_seed: 1'
    runs = []
    for name in ("own", "caffes"):
        (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/{name}.prototxt" {solver}')
        run = bpt.get_solver(tmp_path / "solver.prototxt")
        rng = np.random.default_rng(0)
        for blob in ("x", "y"):
            run.net.blobs[blob].data[...] = rng.standard_normal((4, 3))
        run.step(3)
        runs.append(run)
    mine, theirs = (run.net for run in runs)
    assert (mine.params["scale"][0].data != 0.5).all()
    for layer in ("scale", "again"):
        for one, other in zip(mine.params[layer], theirs.params[layer], strict=True):
            np.testing.assert_allclose(one.data, other.data, rtol=1e-4, atol=1e-6)
    mine.save(tmp_path / "w.caffemodel")
    again = bpt.Net(tmp_path / "own.prototxt", bpt.TEST, weights=tmp_path / "w.caffemodel")
    user: Any = again.layers[again._layer_names.index("scale")]
    np.testing.assert_array_equal(user.blobs[0].data, mine.params["scale"][0].data)
    user.blobs[0].data[...] = 0
    assert not again.params["again"][0].data.any()  # shared by its name


def test_what_a_script_is_told_of_its_own_code(write: Write, tmp_path: Path) -> None:
    """From Python exceptions pass as they were raised, for a script to catch; the command line tells them in a line."""
    start = "import caffe\nclass L(caffe.Layer):\n"
    rest = "    def reshape(self, b, t): t[0].reshape(*b[0].shape)\n    def forward(self, b, t): raise StopIteration\n"
    net = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
    path = tmp_path / "n.prototxt"
    path.write_text(f'{net} layer {{ name: "L" bottom: "x" top: "y" {body(write(start + FAILS + rest))} }}')
    with pytest.raises(ZeroDivisionError) as caught:
        bpt.Net(path, bpt.TEST)
    assert caught.traceback[-1].name == "setup"
    path.write_text(f'{net} layer {{ name: "L" bottom: "x" top: "y" {body(write(start + PASSES + rest))} }}')
    with pytest.raises(StopIteration):
        bpt.Net(path, bpt.TEST).forward()


FAILS = "    def setup(self, b, t): 1 / 0\n"
PASSES = "    def setup(self, b, t): pass\n"
