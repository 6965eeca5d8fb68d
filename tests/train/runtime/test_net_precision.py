"""``default_forward_type`` and ``forward_type`` in the net's text, as NVIDIA's Caffe has them; expected by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.config.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from bpt.system.device import half_support
from bpt.train.runtime import half_precision
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.spread_runs import NET, read_model, train

FC = 'layer { name: "fc" '
RELU = 'layer { name: "relu" '


@pytest.fixture(autouse=True)
def slow_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device computes in half precision, if slowly."""
    monkeypatch.setattr(half_precision, "without_half", lambda device, dtype: "")


def half_layers(text: str, *overrides: str) -> tuple[torch.dtype | None, set[str]]:
    """The numbers of a run's half precision, and which layers compute in it."""
    Path("net.prototxt").write_text(text)
    with Solver(read_plan("solver.prototxt", overrides)) as solver:
        net = solver.net
        layers = {node.name for node in net.graph.nodes if net.precision.in_half.layers[node.index]}
        return net.context.precision.half, layers


ALL = {"conv", "bn", "drop", "fc", "relu", "ip"}


def test_the_net_asks_for_float16() -> None:
    assert half_layers(f"{NET} default_forward_type: FLOAT16") == (torch.float16, ALL)


def test_the_solver_has_the_last_word() -> None:
    text = f"{NET} default_forward_type: FLOAT16"
    assert half_layers(text, "precision: FLOAT32") == (None, set())
    assert half_layers(text, "precision: BFLOAT16") == (torch.bfloat16, ALL)


@pytest.mark.parametrize("precision", ["FLOAT16", "BFLOAT16"])
def test_a_layer_stays_out(precision: str) -> None:
    text = NET.replace(FC, f"{FC} forward_type: FLOAT ")
    assert half_layers(text, f"precision: {precision}")[1] == {"conv", "bn", "drop", "ip"}


def test_auto_does_not_measure_what_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def seconds(net: object, node: object, *rest: object) -> tuple[float, float]:
        measured.append(node.name)  # type: ignore[attr-defined]
        return 1.0, 2.0

    monkeypatch.setattr(half_precision, "_seconds", seconds)
    text = NET.replace(FC, f"{FC} forward_type: FLOAT ").replace(
        'layer { name: "ip" ', 'layer { name: "ip" forward_type: FLOAT16 '
    )
    assert half_layers(text, "precision: AUTO")[1] == {"ip"}
    assert measured == ["conv"]


def test_some_layers_ask_for_it() -> None:
    assert half_layers(NET.replace(FC, f"{FC} forward_type: FLOAT16 ")) == (torch.float16, {"fc", "relu"})
    text = NET.replace(RELU, f"{RELU} forward_type: FLOAT16 ")
    assert half_layers(text) == (torch.float16, {"relu"})
    data = NET.replace('layer { name: "loss" ', 'layer { name: "loss" forward_type: FLOAT16 ')
    assert half_layers(data)[1] == set()  # its type cannot be


def test_plans() -> None:
    def precision(text: str, *overrides: str) -> object:
        Path("net.prototxt").write_text(NET + text)
        return read_plan("solver.prototxt", overrides).precision

    assert precision("") is FLOAT32
    assert precision("default_forward_type: FLOAT") is FLOAT32
    assert precision("default_forward_type: FLOAT16") is FLOAT16
    assert precision("default_forward_type: DOUBLE") is FLOAT64
    assert precision("default_forward_type: DOUBLE", "precision: BFLOAT16") is BFLOAT16


@pytest.mark.parametrize("asks", ["default", "layer"])
def test_a_cpu_goes_on_in_float32(asks: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(half_precision, "without_half", half_support.without_half)
    layer = NET.replace(FC, f"{FC} forward_type: FLOAT16 ")
    train(2)
    plain = {name: values.tolist() for name, values in read_model(9).items()}
    Path("net.prototxt").write_text(f"{NET} default_forward_type: FLOAT16" if asks == "default" else layer)
    run = train(2)
    (line,) = [line for line in run.log if line.startswith("Precision")]
    assert line.startswith("Precision: FLOAT32, though the net's text asks for FLOAT16, since rank 0 on host ")
    assert line.endswith("CPUs have no float16 products; use BFLOAT16 (precision: BFLOAT16 in the solver)")
    assert {name: values.tolist() for name, values in read_model(9).items()} == plain


@pytest.mark.gpu
def test_a_gpu_computes_in_it() -> None:
    Path("net.prototxt").write_text(f"{NET} default_forward_type: FLOAT16")
    with Solver(read_plan("solver.prototxt"), TrainOptions(torch.device("cuda", 0))) as solver:
        solver.step(3)
        assert solver.net.context.precision is FLOAT16 and solver.runtime.updater.scale.dynamic
