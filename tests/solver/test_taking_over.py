"""What a run takes from files: weights for all its nets, and the state of a run before it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from bpt.base.errors import FileError
from bpt.config.plan.nets import file_plan
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.train import state as snapshot
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver

NET = """
name: "small"
layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"
  inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
layer { name: "scale" type: "Scale" bottom: "x" top: "z" include { phase: TEST } }
layer { name: "extra" type: "Silence" bottom: "z" include { phase: TEST stage: "deploy" } }
"""
SOLVER = """
net: "net.prototxt" test_iter: 1 test_interval: 1 base_lr: 0.1 lr_policy: "fixed" max_iter: 2 random_seed: 1
snapshot_prefix: "small" solver_mode: CPU
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solver(*overrides: str, resume: str = "") -> Solver:
    return Solver(read_plan("solver.prototxt", overrides), TrainOptions(resume=resume))


def test_weights_reach_layers_that_only_a_test_net_has() -> None:
    with solver() as before, torch.no_grad():
        for (layer, _), value in before.runtime.nets.tests[0][1].net.values_by_name().items():
            value.fill_({"ip": 5.0, "scale": 7.0}[layer])
        snapshot.save_weights(before.runtime.nets.tests[0][1].net, "a.caffemodel")
        snapshot.save_weights(before.net, "b.caffemodel")
    with solver('weights: " a.caffemodel , b.caffemodel"') as after:
        values = after.runtime.nets.tests[0][1].net.values_by_name()
        assert values["scale", 0].tolist() == [7, 7, 7]
        assert values["ip", 0].tolist() == [[5, 5, 5]]
        assert after.net.values_by_name()["ip", 0].tolist() == [[5, 5, 5]]


def test_weights_beside_the_solver_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "w.caffemodel").touch()
    assert snapshot.weight_files(["w.caffemodel,,x"], "inner/solver.prototxt") == ["inner/w.caffemodel", "x"]


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_the_state_of_another_solver_type_is_refused(form: str) -> None:
    with solver(f"snapshot_format: {form}") as run:
        path = run.snapshot()
    with pytest.raises(FileError) as caught:
        solver('type: "Nesterov"', resume=path)
    assert str(caught.value) == (
        f"{path}: was written by a solver of type SGD, whose history Nesterov cannot use; "
        'set type: "SGD", or start from its weights with --weights'
    )


def test_a_run_that_is_done_is_not_done_again(caplog: pytest.LogCaptureFixture) -> None:
    with solver() as run:
        run.solve()
    written = Path("small_iter_2.caffemodel").stat().st_mtime_ns
    caplog.clear()
    with caplog.at_level(logging.INFO, "bpt"), solver(resume="auto") as run:
        run.solve()
    assert caplog.messages[-1] == "Iteration 2 is reached already, max_iter is 2: nothing to train"
    assert Path("small_iter_2.caffemodel").stat().st_mtime_ns == written


def test_a_net_without_a_loss_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    text = NET.replace('layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }', "")
    Path("net.prototxt").write_text(text)
    with caplog.at_level(logging.WARNING, "bpt"):
        solver().close()
    assert caplog.messages == ["The training net has no loss: nothing will be learned"]


def test_stages_of_the_net_file_count() -> None:
    Path("net.prototxt").write_text('state { stage: "deploy" }' + NET)
    names = [node.name for node in build_graph_of(file_plan("net.prototxt", pb.TEST)).nodes]
    assert "extra" in names
