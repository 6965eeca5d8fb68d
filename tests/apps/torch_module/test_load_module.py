"""bpt.load_module: a network text as a plain module, for what the PyTorch world does with modules."""

from __future__ import annotations

import copy
import re
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import bpt
from bpt.base.errors import FileError, PrototxtError, UserError
from tests.support.paths import PROTOTXT
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

DEPLOYED = {"lenet": (3, 1, 28, 28), "cifar10_full": (2, 3, 32, 32), "resnet20": (2, 3, 32, 32)}
LARGE = {"alexnet": (2, 3, 227, 227)}


def deploy(name: str) -> str:
    return str(PROTOTXT / name / "deploy.prototxt")


def batch(*shape: int) -> torch.Tensor:
    return torch.from_numpy(numbers(*shape))


@pytest.mark.parametrize("name", DEPLOYED)
def test_it_computes_what_the_net_does(name: str, tmp_path: Path) -> None:
    net = bpt.Net(deploy(name), bpt.TEST)
    for params in net.params.values():
        for param in params:
            param.data[...] += 0.1
    net.save(tmp_path / "w.caffemodel")
    module = bpt.load_module(deploy(name), tmp_path / "w.caffemodel")
    x = batch(*DEPLOYED[name])
    net.blobs["data"].reshape(*x.shape)
    (out,) = net.forward(data=x.numpy()).values()
    with torch.no_grad():
        torch.testing.assert_close(module(x), torch.from_numpy(out), rtol=1e-5, atol=1e-6)


def test_a_tuple_of_outputs_sorted_by_name(tmp_path: Path) -> None:
    text = inputs(p=(2,), q=(2,)) + layer("Eltwise", "p q", "z") + layer("ReLU", "q", "a")
    module = bpt.load_module(write(tmp_path, text))
    a, z = module(torch.tensor([-5.0, 1]), torch.tensor([-2.0, 3]))
    assert (a.tolist(), z.tolist()) == ([0, 3], [-7, 4])


def test_more_samples_than_the_text_says_go_where_minus_1_is(tmp_path: Path) -> None:
    """As in a Net whose input is reshaped: 2 steps stay 2 steps, and there are 3 sequences."""
    dims = "reshape_param { shape { dim: 2 dim: -1 dim: 5 } }"
    path = write(tmp_path, inputs(x=(2, 5)) + layer("Reshape", "x", "y", dims))
    net = bpt.Net(path, bpt.TEST)
    x = batch(6, 5)
    net.blobs["x"].reshape(6, 5)
    (expected,) = net.forward(x=x.numpy()).values()
    assert expected.shape == (2, 3, 5)
    assert torch.equal(bpt.load_module(path)(x), torch.from_numpy(expected))


class TestNames:
    def test_parameters_are_called_after_their_layers(self) -> None:
        module = bpt.load_module(deploy("lenet"))
        names = [f"{layer}.blobs.{i}" for layer in ("conv1", "conv2", "ip1", "ip2") for i in (0, 1)]
        assert [name for name, _ in module.named_parameters()] == list(module.state_dict()) == names
        assert module.get_parameter("conv1.blobs.0").shape == (20, 1, 5, 5)

    def test_slashes_stay_dots_and_taken_names_give_way(self, tmp_path: Path) -> None:
        text = inputs(x=(1, 2))
        bottom = "x"
        for name in ("a/1x1", "b.c", "b_c", "forward", "training"):
            text += inner_product(bottom, name, 2)
            bottom = name
        text += 'layer { type: "InnerProduct" bottom: "training" top: "y" inner_product_param { num_output: 2 } }'
        module = bpt.load_module(write(tmp_path, text))
        assert [name for name in module.state_dict() if name.endswith(".0")] == [
            "a/1x1.blobs.0",
            "b_c.blobs.0",
            "b_c_.blobs.0",
            "forward_.blobs.0",
            "training_.blobs.0",
            "layer6.blobs.0",
        ]
        assert module(torch.ones(1, 2)).shape == (1, 2)

    def test_state_dicts_go_from_one_to_another(self) -> None:
        module, other = (bpt.load_module(deploy("lenet")) for _ in range(2))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(2)
        other.load_state_dict(module.state_dict())
        x = batch(3, 1, 28, 28)
        assert torch.equal(module(x), other(x))


class TestAsModule:
    def test_it_trains_in_a_plain_loop(self, tmp_path: Path) -> None:
        text = inputs(x=(8, 3)) + inner_product("x", "hidden", 16) + layer("ReLU", "hidden", "hidden", name="relu")
        module = bpt.load_module(write(tmp_path, text + inner_product("hidden", "y", 2)), phase=bpt.TRAIN)
        plain = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        plain.load_state_dict(dict(zip(plain.state_dict(), module.state_dict().values(), strict=True)))
        x, target = batch(8, 3), torch.arange(8) % 2

        def losses(trained: nn.Module) -> list[float]:
            optimizer = torch.optim.Adam(trained.parameters(), lr=0.05)
            seen = []
            for _ in range(20):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(trained(x), target)
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            return seen

        expected = losses(plain)
        assert losses(module) == pytest.approx(expected, rel=1e-4)
        assert expected[-1] < 0.8 * expected[0]

    def test_gradients_reach_the_input(self) -> None:
        module = bpt.load_module(deploy("lenet"))
        x = batch(1, 1, 28, 28).requires_grad_()
        module(x)[0, 3].backward()
        assert x.grad is not None
        assert x.grad.any()
        assert all(parameter.grad is not None for parameter in module.parameters())

    def test_lr_mult_0_freezes(self, tmp_path: Path) -> None:
        text = inputs(x=(1, 3)) + inner_product("x", "y", 2, "param { lr_mult: 0 } param { lr_mult: 1 }")
        module = bpt.load_module(write(tmp_path, text))
        assert [p.requires_grad for p in module.parameters()] == [False, True]

    def test_phases(self, tmp_path: Path) -> None:
        path = write(tmp_path, inputs(x=(1000,)) + layer("Dropout", "x", "y"))
        x = torch.ones(1000)
        assert torch.equal(bpt.load_module(path)(x), x)
        module = bpt.load_module(path, phase=bpt.TRAIN)
        assert module.training
        first, second = module(x), module(x)
        assert set(first.tolist()) == {0.0, 2.0}
        assert not torch.equal(first, second)  # each pass draws anew
        assert torch.equal(module.eval()(x), x)

    def test_copies_are_apart(self) -> None:
        module = bpt.load_module(deploy("lenet"))
        copied = copy.deepcopy(module)
        x = batch(1, 1, 28, 28)
        expected = module(x)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        assert torch.equal(copied(x), expected)
        assert not torch.equal(module(x), expected)

    def test_shared_parameters_are_one(self, tmp_path: Path) -> None:
        shared = 'param { name: "w" } param { name: "b" }'
        text = inputs(x=(1, 3)) + inner_product("x", "a", 3, shared) + inner_product("a", "b", 3, shared)
        module = bpt.load_module(write(tmp_path, text))
        assert module.get_parameter("a.blobs.0") is module.get_parameter("b.blobs.0")
        assert len(list(module.parameters())) == 2

    @pytest.mark.gpu
    def test_on_a_gpu(self) -> None:
        module = bpt.load_module(deploy("lenet"))
        x = batch(3, 1, 28, 28)
        expected = module(x).detach()
        torch.testing.assert_close(module.cuda()(x.cuda()).detach().cpu(), expected, rtol=1e-3, atol=1e-5)


class TestCompilers:
    @pytest.mark.parametrize(
        ("name", "strict"),
        [
            ("lenet", False),
            ("lenet", True),
            ("alexnet", False),
            pytest.param("alexnet", True, marks=pytest.mark.slow),
            pytest.param("resnet20", False, marks=pytest.mark.slow),
        ],
    )
    def test_export(self, name: str, strict: bool) -> None:
        module = bpt.load_module(deploy(name))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.01)  # nor are variances zero then
        x = batch(*(DEPLOYED | LARGE)[name])
        exported = torch.export.export(module, (x,), strict=strict)
        assert list(exported.state_dict) == list(module.state_dict())
        with torch.no_grad():
            expected = module(x)
            assert expected.isfinite().all()
            torch.testing.assert_close(exported.module()(x), expected)

    def test_export_of_names_with_slashes(self, tmp_path: Path) -> None:
        text = inputs(x=(2, 3)) + inner_product("x", "a/1.b", 4) + inner_product("a/1.b", "a_1.b", 4)
        module = bpt.load_module(write(tmp_path, text))
        exported = torch.export.export(module, (batch(2, 3),))
        torch.testing.assert_close(exported.module()(batch(2, 3)), module(batch(2, 3)))

    @pytest.mark.slow
    @pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
    @pytest.mark.parametrize("name", ["lenet", "alexnet"])
    def test_compile(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        module = bpt.load_module(deploy(name))
        x = batch(*(DEPLOYED | LARGE)[name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own making
            compiled = torch.compile(module, fullgraph=True)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-6)


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nope\.caffemodel: no such file"):
        bpt.load_module(deploy("lenet"), "nope.caffemodel")
    with pytest.raises(PrototxtError, match=r"net.prototxt:2:\d+: .*did you mean"):
        bpt.load_module(write(tmp_path, inputs(x=(1, 2)) + layer("RelU", "x", "y")))
    with pytest.raises(UserError, match=r"^phase must be bpt.TRAIN or bpt.TEST, not 'TEST'$"):
        bpt.load_module(deploy("lenet"), phase="TEST")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            torch.zeros(5, 3, 28, 28),
            'the net cannot take input "data" (5, 3, 28, 28) (in the text (1, 1, 28, 28)): § layer "conv1": would '
            "need a parameter of shape (20, 3, 5, 5) for bottom (1, 3, 28, 28); it has one of (20, 1, 5, 5)",
        ),
        (
            torch.zeros(1, 1, 32, 32),
            'the net cannot take input "data" (1, 1, 32, 32) (in the text (1, 1, 28, 28)): § layer "ip1": would '
            "need a parameter of shape (500, 1250) for bottom (1, 50, 5, 5); it has one of (500, 800)",
        ),
        (
            torch.zeros(1, 1, 28, 28, dtype=torch.int64),
            'input "data" (1, 1, 28, 28) is of torch.int64, the parameters are of torch.float32; '
            "give it as .to(torch.float32)",
        ),
        (
            numbers(1, 1, 28, 28),
            'input "data" must be a torch.Tensor of shape (1, 1, 28, 28), not a numpy.ndarray; '
            "torch.from_numpy makes one",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named(given: object, message: str) -> None:
    module = bpt.load_module(deploy("lenet"))
    start, _, rest = message.partition("§")
    with pytest.raises(UserError, match=f"^{re.escape(start)}.*{re.escape(rest)}"):
        module(given)
    assert module(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    with pytest.raises(UserError, match=r"the net takes 1 input \(data\), given 0"):
        module()


def test_inputs_of_other_shapes_that_fit(tmp_path: Path) -> None:
    """A net of convolutions takes images of any size, and the axis of samples may be another than 0."""
    text = inputs(x=(2, 1, 6, 6)) + layer("Convolution", "x", "c", "convolution_param { num_output: 3 kernel_size: 3 }")
    module = bpt.load_module(write(tmp_path, text))
    assert module(torch.zeros(4, 1, 9, 7)).shape == (4, 3, 7, 5)
    lstm = layer("LSTM", "x m", "y", "recurrent_param { num_output: 3 }")
    module = bpt.load_module(write(tmp_path, inputs(x=(4, 2, 5), m=(4, 2)) + lstm))
    assert module(torch.zeros(6, 7, 5), torch.zeros(6, 7)).shape == (6, 7, 3)
    with pytest.raises(UserError, match=r'input "m" \(5, 2\) \(in the text \(4, 2\)\): .*layer "y": needs inputs'):
        module(torch.zeros(4, 2, 5), torch.zeros(5, 2))
