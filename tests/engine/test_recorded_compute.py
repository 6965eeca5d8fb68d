"""Passes that are recorded on a CPU and replayed give the numbers of plain passes, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.engine import recorded_compute
from bpt.engine.compute import LibraryCompute
from bpt.engine.operator import Operator
from bpt.engine.recorded_compute import RecordedCompute
from bpt.engine.replayed_compute import SETTLED_AFTER
from bpt.nn.fusion.operator_program import Program, record_program
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.small_solver import small_solver

ITERATIONS = SETTLED_AFTER + 6
DATA = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 8 dim: 3 dim: 8 dim: 8 } shape { dim: 8 }
                           data_filler { type: "gaussian" std: 1 } data_filler { type: "uniform" min: 0 max: 2.99 } } }
"""
LOSS = """
layer { name: "ip" type: "InnerProduct" bottom: "top" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
CONVOLVED = """
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
"""
RESIDUAL = f"""{DATA}{CONVOLVED}
layer {{ name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }}
layer {{ name: "scale" type: "Scale" bottom: "bn" top: "bn" scale_param {{ bias_term: true }} }}
layer {{ name: "relu" type: "ReLU" bottom: "bn" top: "bn" }}
layer {{ name: "again" type: "Convolution" bottom: "bn" top: "again"
        convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "sum" type: "Eltwise" bottom: "bn" bottom: "again" top: "top" }}
{LOSS}"""
LOCAL = f"""{DATA}{CONVOLVED}
layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "relu" type: "ReLU" bottom: "pool" top: "pool" }}
layer {{ name: "norm" type: "LRN" bottom: "pool" top: "norm" }}
layer {{ name: "mean" type: "Pooling" bottom: "norm" top: "mean"
        pooling_param {{ pool: AVE kernel_size: 2 stride: 2 }} }}
layer {{ name: "join" type: "Concat" bottom: "mean" bottom: "mean" top: "top" }}
{LOSS}"""
PARAMETER = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 8 dim: 8 } shape { dim: 8 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 8 dim: 4 dim: 8 dim: 8 } } }
layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "p" top: "sum" }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
"""A layer without bottoms that is trained."""
NETS = {"residual": RESIDUAL, "local": LOCAL}


class Programs:
    """Records passes, and counts how often their programs run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.runs: list[int] = []
        patch.setattr(recorded_compute, "record_program", self._record)

    def _record(self, *arguments: object) -> Program:
        program, place = record_program(*arguments), len(self.runs)  # type: ignore[arg-type]
        self.runs.append(0)

        def run(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
            self.runs[place] += 1
            return program(inputs)

        return run


def solver_of(folder: Path, net: str, overrides: str = "", plain: bool = False) -> Solver:
    options = TrainOptions(make_operator=lambda net, device: Operator(net, device=device, compute=LibraryCompute))
    plan = small_solver(folder, "random_seed: 4 display: 0", overrides, net=net)
    return Solver(plan, options) if plain else Solver(plan)


def trained(
    folder: Path, net: str, overrides: str = "", plain: bool = False
) -> tuple[list[float], list[Tensor], list[Tensor]]:
    """The losses of ITERATIONS; all blobs behind them, statistics included; and the moments."""
    with solver_of(folder, net, overrides, plain) as solver:
        losses = [solver.runtime.iterate() for _ in range(ITERATIONS)]
        blobs = [value.detach().clone() for value in solver.net.parameters()]
        return losses, blobs, list(solver.runtime.updater.rule.history)


@pytest.mark.parametrize("layout", ["CONTIGUOUS", "CHANNELS_LAST"])
@pytest.mark.parametrize("overrides", ["", "iter_size: 2", "clip_gradients: 0.1", "type: 'Adam' momentum2: 0.9"])
@pytest.mark.parametrize("net", NETS)
def test_replayed_iterations_equal_plain_ones(
    net: str, overrides: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, overrides = Programs(monkeypatch), f"{overrides} engine: {layout}"
    expected, found = (trained(tmp_path, NETS[net], overrides, plain) for plain in (True, False))
    assert found[0] == expected[0]
    assert len(set(found[0])) == ITERATIONS  # each batch is another one
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert all(map(torch.equal, one, other))
    passes = ITERATIONS * (2 if "iter_size" in overrides else 1)
    assert programs.runs == [passes - SETTLED_AFTER]  # the first is the one that is compared


def test_half_precision_is_replayed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(monkeypatch)
    expected, found = (trained(tmp_path, RESIDUAL, "precision: BFLOAT16", plain) for plain in (True, False))
    assert found[0] == expected[0]
    assert all(map(torch.equal, found[1], expected[1]))
    assert programs.runs == [ITERATIONS - SETTLED_AFTER]


DROPPED = RESIDUAL.replace(
    'layer { name: "ip"', 'layer { name: "drop" type: "Dropout" bottom: "top" top: "top" }\nlayer { name: "ip"'
)


@pytest.mark.parametrize("large", [False, True])
def test_layers_that_draw_and_large_nets_stay_plain(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, net = Programs(monkeypatch), RESIDUAL if large else DROPPED
    if large:
        monkeypatch.setattr(recorded_compute, "LARGEST", 1000)
    assert trained(tmp_path, net)[0] == trained(tmp_path, net, plain=True)[0]
    assert programs.runs == []


def test_hooks_are_called_in_every_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, seen = Programs(monkeypatch), []
    with solver_of(tmp_path, LOCAL) as solver:
        solver.step(SETTLED_AFTER + 1)
        hook = solver.net.layers[1].register_forward_hook(lambda layer, bottoms, top: seen.append(top))
        solver.step(3)
        hook.remove()
        solver.step(2)
    assert len(seen) == 3
    assert programs.runs == [3]


@pytest.mark.parametrize("fault", ["raises", "differs"])
def test_a_recording_that_fails_leaves_plain_passes(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> Program:
        program = record_program(*arguments)  # type: ignore[arg-type]
        if fault == "raises":
            raise RuntimeError("no such operator")
        return lambda inputs: [tensor * 1.000001 for tensor in program(inputs)]

    monkeypatch.setattr(recorded_compute, "record_program", broken)
    found, expected = trained(tmp_path, RESIDUAL), trained(tmp_path, RESIDUAL, plain=True)
    assert found[0] == expected[0]
    assert all(map(torch.equal, found[1], expected[1]))


def test_a_label_that_is_no_class_has_the_error_of_the_plain_pass(tmp_path: Path) -> None:
    inputs = 'name: "x" type: "Input" top: "x" top: "y" input_param { shape { dim: [8, 3, 8, 8] } shape { dim: 8 } }'
    net = f"layer {{ {inputs} }}{LOCAL.removeprefix(DATA)}"
    with solver_of(tmp_path, net, "engine: CONTIGUOUS") as solver:
        operator = solver.runtime.nets.train.operator
        edges = {edge.blob: edge.index for edge in solver.net.graph.input_edges}
        operator.feed({edges["x"]: torch.ones(8, 3, 8, 8), edges["y"]: torch.ones(8)})
        solver.step(SETTLED_AFTER + 2)
        compute = operator.compute
        assert isinstance(compute, RecordedCompute)
        assert compute._recorded is not None
        operator.feed({edges["y"]: torch.tensor([0.0, 1, 2, 0, 1, 3, 1, 2])})
        before = [value.detach().clone() for value in solver.net.parameters()]
        with pytest.raises(DataError, match='layer "loss": label 3 at position 5 of "y" is outside'):
            solver.step(1)
        assert all(map(torch.equal, solver.net.parameters(), before))


def test_a_layer_without_bottoms_is_trained(tmp_path: Path) -> None:
    expected, found = (trained(tmp_path, PARAMETER, plain=plain) for plain in (True, False))
    assert found[0] == expected[0]
    assert all(map(torch.equal, found[2], expected[2]))
    assert sum(float(tensor.abs().sum()) for tensor in found[2] if tuple(tensor.shape) == (8, 4, 8, 8)) > 0


def test_a_hook_of_a_parameter_sees_each_gradient(tmp_path: Path) -> None:
    seen: list[float] = []
    solver = solver_of(tmp_path, LOCAL)
    next(iter(solver.net.parameters())).register_hook(lambda grad: seen.append(float(grad.sum())))
    solver.step(SETTLED_AFTER + 4)
    assert len(seen) == SETTLED_AFTER + 4
