"""Every network for use in ``prototxt/`` goes through ``torch.export``, ONNX and ``torch.compile``.

The files are found by their names, so a new one is among them at once. A net that is not named in one of the lists
below is tried by the slow tests only.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bpt
from bpt.apps.export.parity import compare, runner_of_onnx
from bpt.apps.export.program import OPSET, Program, program_of, write_onnx
from bpt.apps.export.random_inputs import RandomInputs
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers.batch_norm import BatchNorm
from bpt.nn.net_graph import build_graph_of
from tests.support.full_families import FAMILIES, text_for_use
from tests.support.paths import PROTOTXT
from tests.support.pycaffe_texts import inner_product, inputs, layer, write

FILES = {str(path.relative_to(PROTOTXT).with_suffix("")): path for path in sorted(PROTOTXT.rglob("deploy*.prototxt"))}
EXPORTED = [  # at once, not by the slow tests only
    *("bpt_cnn/case1", "cifar10_full_sigmoid_bn", "fcn_shapes", "lenet", "lrcn_moves", "mnist_siamese", "resnet20")
]
AS_ONNX = ["cifar10_full_sigmoid_bn", "fcn_shapes"]
COMPILED = ["cifar10_full_sigmoid_bn", "lrcn_moves"]
# Attention over 28^3 places would need gigabytes in onnxruntime.
SMALLER = {"resattnet18_3d/deploy": ("dim: 112", "dim: 32"), "resattnet34_3d/deploy": ("dim: 112", "dim: 32")}


def cases(at_once: list[str]) -> list[object]:
    names = {f"{name}/deploy" for name in at_once}
    assert names <= FILES.keys()
    return [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in FILES]


@pytest.fixture(autouse=True)
def _torchs_own_warnings() -> Iterator[None]:
    """Compilers warn of what torch itself does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.compiler.reset()


class Case:
    """A net with weights as after some training, and batches for it."""

    def __init__(self, path: Path | str) -> None:
        self.inputs = RandomInputs(build_graph_of(file_plan(str(path), pb.TEST)))
        self.module: Any = bpt.load_module(path)
        self._learn_statistics()

    def batch(self, times: int) -> tuple[Tensor, ...]:
        """As many samples as the text says, so many times; the numbers are others each time."""
        return self.inputs.batch(times)

    def program(self) -> Program:
        program = program_of(self.module, self.inputs, (self.module.inputs, self.module.outputs))
        assert not program.fixed
        return program

    def check(self, run: Callable[..., object], *others: int) -> None:
        """``run`` gives what the module gives, for the batch it was made with and for others."""
        for times in (2, *others):
            batch = self.batch(times)
            with torch.no_grad():
                close(run(*batch), self.module(*batch))

    def _learn_statistics(self) -> None:
        """Fillers leave the statistics of BatchNorm 0, and deep nets without them overflow."""
        norms = [layer for layer in self.module.modules() if isinstance(layer, BatchNorm)]
        for norm in norms:
            norm.train()
        if norms:
            with torch.no_grad():
                self.module(*self.batch(4))
        for norm in norms:
            norm.eval()


def close(got: object, expected: object) -> None:
    for one, other in zip(as_tuple(got), as_tuple(expected), strict=True):
        assert other.isfinite().all()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def as_tuple(result: object) -> tuple[Tensor, ...]:
    if isinstance(result, Tensor):
        return (result,)
    assert isinstance(result, (tuple, list))
    return tuple(result)


@cache
def case_of(name: str) -> Case:
    return Case(FILES[name])


def make_case(name: str, folder: Path) -> Case:
    if name in SMALLER:
        return Case(write(folder, FILES[name].read_text().replace(*SMALLER[name])))
    at_once = name.removesuffix("/deploy") in EXPORTED  # the others are large: one at a time
    return case_of(name) if at_once else Case(FILES[name])


@pytest.mark.parametrize("name", cases(EXPORTED))
def test_export(name: str, tmp_path: Path) -> None:
    case = make_case(name, tmp_path)
    program = case.program().exported
    assert list(program.state_dict) == list(case.module.state_dict())
    alone = (
        (1,) if all(shape[0] == 1 for shape in case.inputs.shapes) else ()
    )  # torch guards against one sequence alone
    case.check(program.module(), 3, *alone)


def test_the_batch_stays_free_and_modes_of_autograd_are_not_written_down() -> None:
    graph = case_of("resnet20/deploy").program().exported.graph
    (data,) = (node for node in graph.nodes if node.name == "data" or node.target == "inputs_0")
    assert isinstance(data.meta["val"].shape[0], torch.SymInt)
    assert not [node for node in graph.nodes if "set_grad" in str(node.target) or "wrap" in str(node.target)]


class OnnxNet:
    """An ONNX model, run by onnxruntime, or by onnx's own plain evaluator where that is missing."""

    def __init__(self, case: Case, folder: Path) -> None:
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxscript")
        path = folder / "net.onnx"
        write_onnx(case.program(), path)
        model = onnx.load(path, load_external_data=False)
        self.operators = {(node.domain, node.op_type) for node in model.graph.node}
        assert [value.name for value in model.graph.input] == case.module.inputs
        assert [value.name for value in model.graph.output] == case.module.outputs
        assert {entry.domain: entry.version for entry in model.opset_import}[""] == OPSET
        self.runner = runner_of_onnx(path, case.module.inputs)

    def __call__(self, *batch: Tensor) -> tuple[Tensor, ...]:
        return self.runner.run(*batch)


@pytest.mark.parametrize("name", cases(AS_ONNX))
def test_onnx(name: str, tmp_path: Path) -> None:
    case = make_case(name, tmp_path)
    net = OnnxNet(case, tmp_path)
    assert {domain for domain, _ in net.operators} == {""}  # standard operators only
    case.check(net, 3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_whole_families_as_onnx(name: str, tmp_path: Path) -> None:
    """With statistics by chance numbers are large: differences count as parts of the largest."""
    case = Case(write(tmp_path, text_for_use(FAMILIES[name])))
    found = compare(case.module, OnnxNet(case, tmp_path).runner, case.inputs, (2,))
    assert all(each.passes for each in found), "\n".join(map(str, found))
    assert all(each.is_small for each in found) or name == "SegNet"  # whose masks are of nearly equal numbers


@pytest.mark.parametrize("name", cases(COMPILED))
def test_compile(name: str, tmp_path: Path) -> None:
    case = make_case(name, tmp_path)
    case.check(torch.compile(case.module, fullgraph=True, backend="aot_eager"))


@pytest.mark.parametrize("name", cases(["lenet"]))
def test_gradients_of_a_compiled_net(name: str, tmp_path: Path) -> None:
    case = make_case(name, tmp_path)
    compiled = torch.compile(case.module, fullgraph=True, backend="aot_eager")
    wanted = [parameter for parameter in case.module.parameters() if parameter.requires_grad]

    def gradients(run: Callable[..., Any]) -> tuple[Tensor | None, ...]:
        loss = torch.stack([top.square().sum() for top in as_tuple(run(*case.batch(2)))]).sum()
        return torch.autograd.grad(loss, wanted, allow_unused=True)

    for one, other in zip(gradients(compiled), gradients(case.module), strict=True):
        if other is None:
            assert one is None or not one.any()
            continue
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(other.abs().max())))


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["lenet/deploy", "resnet20/deploy"])
def test_inductor(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    case = case_of(name)
    case.check(torch.compile(case.module, fullgraph=True, dynamic=True), 3)


CONVOLUTION = 'num_output: 6 kernel_size: 3 weight_filler { type: "xavier" }'
LAYERS = (
    inputs(x=(1, 4, 9, 9))
    + layer("Convolution", "x", "c", f"convolution_param {{ {CONVOLUTION} group: 2 pad: 1 }}")
    + layer("BatchNorm", "c", "c", name="bn")
    + layer("Scale", "c", "c", "scale_param { bias_term: true }", name="scale")
    + layer("LRN", "c", "n", "lrn_param { local_size: 3 alpha: 0.5 }")
    + layer("Pooling", "n", "p", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }")  # rounds up
    + layer("Pooling", "n", "q", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
    + layer("Power", "q", "r", "power_param { scale: 0.5 shift: 1 }")
    + layer("Eltwise", "p r", "e", "eltwise_param { operation: SUM coeff: 1 coeff: -1 }")
    + layer("Attention", "e p e", "a")
    + layer("Deconvolution", "a", "d", f"convolution_param {{ {CONVOLUTION} group: 3 stride: 2 }}")
    + layer("Dropout", "d", "d", name="drop")
    + layer("BatchNorm", "d", "b", "batch_norm_param { use_global_stats: false }")
    + layer("BN", "b", "l", "bn_param { bn_mode: LEARN scale_filler { type: 'constant' value: 1 } }")
    + layer("SPP", "l", "s", "spp_param { pyramid_height: 2 pool: MAX }")
    + inner_product("s", "y", 3)
    + layer("Softmax", "y", "prob")
)


@pytest.mark.slow
def test_layers_as_onnx(tmp_path: Path) -> None:
    case = Case(write(tmp_path, LAYERS))
    net = OnnxNet(case, tmp_path)
    assert {domain for domain, _ in net.operators} == {""}
    assert {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "Softmax", "Gemm"} <= {name for _, name in net.operators}
    case.check(net, 3, 1)
