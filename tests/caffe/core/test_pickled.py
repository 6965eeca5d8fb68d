"""bpt.load_module's modules, pickled."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import bpt
from bpt.base.errors import LayerError, UserError
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

NET = (
    inputs(x=(4, 2, 5, 5))
    + layer("Convolution", "x", "c", "convolution_param { num_output: 3 kernel_size: 3 weight_filler { std: 0.5 } }")
    + layer("BatchNorm", "c", "n")
    + layer("Dropout", "n", "d")
    + inner_product("d", "y", 3, "param { lr_mult: 0 } param { lr_mult: 1 }")
)
PYTHON = """
import torch
from torch import nn

class L(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("passes", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.passes += 1
        return self.norm(self.linear(x)) * self.passes
"""


def again(module: nn.Module) -> nn.Module:
    made: nn.Module = pickle.loads(pickle.dumps(module))
    return made


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def batch(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(numbers(*shape, seed=seed))


def assert_equal(one: nn.Module, other: nn.Module) -> None:
    """In what they hold."""
    ours, theirs = one.state_dict(keep_vars=True), other.state_dict(keep_vars=True)
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        assert values.dtype == theirs[name].dtype
        assert values.requires_grad == theirs[name].requires_grad
        assert torch.equal(values.detach(), theirs[name].detach())
    modes = [(name, type(part), part.training) for name, part in one.named_modules()]
    assert modes == [(name, type(part), part.training) for name, part in other.named_modules()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("through", [again, saved_and_loaded])
def test_it_goes_on_as_the_original(
    through: Callable[[nn.Module], nn.Module], dtype: torch.dtype, tmp_path: Path
) -> None:
    """After a step of training, and with the dropout of the next pass."""
    module = bpt.load_module(write(tmp_path, NET), phase=bpt.TRAIN).to(dtype)
    x = batch(4, 2, 5, 5).to(dtype)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    module(x).square().sum().backward()
    optimizer.step()

    other = through(module)
    assert_equal(module, other)
    assert [(type(parameter), parameter.grad) for parameter in other.parameters()] == [(nn.Parameter, None)] * 7
    assert [other.inputs, other.outputs] == [["x"], ["y"]]
    for _ in range(2):
        expected = module(x)
        assert torch.equal(other(x), expected)
    expected.sum().backward()  # though the first one goes on without the other
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not torch.equal(module.eval()(x), other.eval()(x))


class Counter:
    """A hook that holds its module."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.passes = module, 0

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        assert module is self.module
        self.passes += 1
        return output * self.passes


def test_hooks_modes_and_what_else_has_been_added(tmp_path: Path) -> None:
    module = bpt.load_module(write(tmp_path, NET), phase=bpt.TRAIN)
    module.get_submodule("n").eval()
    module.get_submodule("y").register_forward_hook(_negative)
    module.register_forward_hook(Counter(module))
    module.add_module("head", nn.Linear(3, 2))
    vars(module)["note"] = "mine"
    x = batch(4, 2, 5, 5)
    module(x)
    other = again(module)
    assert_equal(module, other)
    assert list(other._modules) == list(module._modules)
    assert other.note == "mine"
    assert torch.equal(other(x), module(x))


def _negative(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return -output


@pytest.mark.parametrize(("mode", "middle"), [("STRICT", 3), ("PERMISSIVE", 2)])
def test_shared_parameters_are_one(mode: str, middle: int, tmp_path: Path) -> None:
    share = f'param {{ name: "w" share_mode: {mode} }}'
    text = inputs(x=(1, 3)) + inner_product("x", "a", middle, share) + inner_product("a", "b", 3, share)
    module = bpt.load_module(write(tmp_path, text))
    other = again(module)
    assert len(list(other.parameters())) == 3
    assert other.get_parameter("b.blobs.0") is other.get_parameter("a.blobs.0")
    assert torch.equal(other(batch(1, 3)), module(batch(1, 3)))


def test_a_recurrent_layer_goes_on_from_its_state(tmp_path: Path) -> None:
    lstm = 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" std: 1 } }'
    module = bpt.load_module(write(tmp_path, inputs(x=(2, 1, 5), m=(2, 1)) + layer("LSTM", "x m", "y", lstm)))
    x, goes_on = batch(2, 1, 5), torch.ones(2, 1)
    first = module(x, goes_on)
    other = again(module)
    expected = module(x, goes_on)
    assert torch.equal(other(x, goes_on), expected)
    assert not torch.equal(expected, first)


def test_a_data_layer_goes_on_from_its_position(tmp_path: Path) -> None:
    for number in range(5):
        Image.fromarray(np.full((1, 1), number, np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{number}.png {number}\n" for number in range(5)))
    source = f'image_data_param {{ source: "{tmp_path}/list.txt" batch_size: 3 is_color: false }}'
    module = bpt.load_module(write(tmp_path, f'layer {{ type: "ImageData" top: "x" top: "l" {source} }}'))
    assert module()[0].tolist() == [0, 1, 2]
    assert again(module)()[0].tolist() == module()[0].tolist() == [3, 4, 0]


class TestPython:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nn.Module]:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        (tmp_path / "pickled_layer.py").write_text(PYTHON)
        python = 'python_param { module: "pickled_layer" layer: "L" }'
        yield bpt.load_module(write(tmp_path, inputs(x=(4, 3)) + layer("Python", "x", "y", python)), phase=bpt.TRAIN)
        del sys.modules["pickled_layer"]

    @pytest.mark.slow
    def test_in_another_process(self, module: nn.Module, tmp_path: Path) -> None:
        """Where nothing but the net's text tells of the layer's module."""
        x = batch(4, 3).double()
        module.double()(x)
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        torch.save((module, x), folder / "in.pt")
        program = (
            "import torch\n"
            "module, x = torch.load('in.pt', weights_only=False)\n"
            "torch.save((module(x), module), 'out.pt')"
        )
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
        y, other = torch.load(folder / "out.pt", weights_only=False)
        assert torch.equal(y, module(x))
        assert_equal(module, other)
        assert torch.equal(other(x), module(x))

    def test_values_that_are_nan_stay(self, module: nn.Module) -> None:
        """New parameters are known by that."""
        module.get_parameter("y.blobs.0").data.fill_(torch.nan)
        assert again(module).get_parameter("y.blobs.0").isnan().all()

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("nn.Linear(3, 3)", "nn.Identity()", '^layer "y" had a parameter 5 when the module was pickled$'),
            ("nn.Linear(3, 3)", "nn.LSTM(3, 3)", '^layer "y" did not have a parameter 7 when'),
            ("linear", "first", r'layer "y": has no "module\.linear", but had one when the module was pickled'),
        ],
    )
    def test_a_class_that_has_changed(self, old: str, new: str, message: str, module: nn.Module) -> None:
        dumped = pickle.dumps(module)
        code = PYTHON.replace(old, new).replace("(self.linear(x))", "(x)")
        exec(code, vars(sys.modules["pickled_layer"]))
        with pytest.raises(UserError, match=message):
            pickle.loads(dumped)


@pytest.mark.parametrize("how", ["pruned", "parametrized"])
def test_parameters_that_are_computed_are_refused(how: str, tmp_path: Path) -> None:
    module = bpt.load_module(write(tmp_path, NET))
    blobs = module.get_submodule("y.blobs")
    if how == "pruned":
        prune.l1_unstructured(blobs, "1", 0.5)
    else:
        parametrize.register_parametrization(blobs, "1", nn.Tanh())
    message = (
        'the module cannot be pickled: parameter 1 of layer "y" is computed from others, because it is pruned or '
        r"parametrized; pickle its state_dict\(\)"
    )
    with pytest.raises(UserError, match=message):
        pickle.dumps(module)


def test_sharing_that_has_ended_is_refused(tmp_path: Path) -> None:
    share = 'param { name: "w" }'
    text = inputs(x=(1, 3)) + inner_product("x", "a", 3, share) + inner_product("a", "b", 3, share)
    module = bpt.load_module(write(tmp_path, text))
    module.load_state_dict({name: values.clone() for name, values in module.state_dict().items()}, assign=True)
    with pytest.raises(
        UserError, match='parameter 0 of layer "b" is no longer the parameter that it shares in the text'
    ):
        pickle.dumps(module)


@pytest.mark.parametrize("added", ["lora", "scale"])
def test_what_is_added_to_a_layer_is_refused(added: str, tmp_path: Path) -> None:
    """When it is dumped: who loads it could not have it back."""
    module = bpt.load_module(write(tmp_path, NET))
    layer = module.get_submodule("y")
    if added == "lora":
        layer.add_module("lora", nn.Linear(3, 3))
    else:
        layer.register_parameter("scale", nn.Parameter(torch.ones(3)))
    with pytest.raises(LayerError) as caught:
        pickle.dumps(module)
    assert f'layer "y": cannot be pickled: "{added}' in str(caught.value)
    assert str(caught.value).endswith("; pickle the module's state_dict()")
    with pytest.raises(LayerError, match="cannot be pickled"):
        pickle.dumps(copy.deepcopy(module))


def test_a_module_without_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no values; pickle its state_dict"):
        pickle.dumps(bpt.load_module(write(tmp_path, NET)).to("meta"))


def test_a_layer_that_writes_is_refused(tmp_path: Path) -> None:
    """The copy would begin by emptying the file."""
    text = inputs(x=(1, 2), y=(1,)) + layer(
        "HDF5Output", "x y", more=f'hdf5_output_param {{ file_name: "{tmp_path}/o" }}'
    )
    with pytest.raises(LayerError, match="cannot be pickled: the copy would write the same file"):
        pickle.dumps(bpt.load_module(write(tmp_path, text)))


def test_a_source_that_is_gone_is_told(tmp_path: Path) -> None:
    Image.new("L", (1, 1)).save(tmp_path / "0.png")
    (tmp_path / "list.txt").write_text(f"{tmp_path}/0.png 0\n")
    source = f'image_data_param {{ source: "{tmp_path}/list.txt" batch_size: 1 }}'
    dumped = pickle.dumps(bpt.load_module(write(tmp_path, f'layer {{ type: "ImageData" top: "x" top: "l" {source} }}')))
    (tmp_path / "list.txt").unlink()
    with pytest.raises(UserError, match=r"list\.txt: no such file"):
        pickle.loads(dumped)


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    module = bpt.load_module(write(tmp_path, NET)).cuda()
    x = batch(4, 2, 5, 5).cuda()
    other = again(module)
    assert all(parameter.is_cuda for parameter in other.parameters())
    assert_equal(module, other)
    torch.testing.assert_close(other(x), module(x))
