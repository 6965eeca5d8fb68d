"""The Python interface used as the recordings of a real Caffe were made: by pycaffe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS
from tests.support.golden_cases import assert_close, recorded
from tests.support.net_cases import NETS, formula, read_net, with_inputs
from tests.support.pycaffe_texts import write
from tests.support.recorded_states import bring, caffe_class
from tests.support.training import SNAPSHOTS, SOLVERS

TOLERANCE = 1e-4  # of whole runs; rounding differs from one CPU's kernels to another's

KINDS = (
    "BatchNorm", "Concat", "Convolution", "Dropout", "Eltwise", "EuclideanLoss", "Flatten", "InnerProduct", "LRN",
    "PReLU", "Pooling", "ReLU", "Scale", "Sigmoid", "Slice", "Softmax", "SoftmaxWithLoss", "Split",
)  # fmt: skip
CASES = [
    pytest.param(kind, case, id=f"{kind}-{case['id']}")
    for kind in KINDS
    for case in recorded(kind)[0]
    if case["id"] != "01_train_random"  # Dropout's mask is random
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_layers(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    arrays = recorded(kind)[1]
    net = bpt.Net(write(tmp_path, case["prototxt"]), pb.Phase.Value(case["phase"]))
    params = net.params.get(case["layer"], [])
    for index, param in enumerate(params):
        param.data[...] = arrays[f"{case['id']}/param/{index}"]
    for step in range(case["steps"]):

        def theirs(what: str, step: int = step) -> dict[str, np.ndarray]:
            prefix = f"{case['id']}/s{step}/{what}/"
            return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}

        for name, array in theirs("in").items():
            net.blobs[name].reshape(*array.shape)
            net.blobs[name].data[...] = array
        net.forward()
        for name, array in theirs("top").items():
            assert_close(net.blobs[name].data, array, f"step {step}: top {name}")
        for number, array in theirs("param_after").items():
            assert_close(params[int(number)].data, array, f"step {step}: param {number} after")
        if not case["backward"]:
            continue
        if not case["accumulate"]:
            net.clear_param_diffs()
        for blob in net.blobs.values():
            blob.diff[...] = 0
        for name, array in theirs("topdiff").items():
            net.blobs[name].diff[...] = array
        net.backward()
        for name, array in theirs("botdiff").items():
            assert_close(net.blobs[name].diff, array, f"step {step}: diff of {name}")
        for number, array in theirs("pgrad").items():
            assert_close(params[int(number)].diff, array, f"step {step}: gradient of param {number}")


def test_all_recorded_layers_of_the_list_exist() -> None:
    assert set(KINDS) <= set(LAYERS)


def test_lenet(tmp_path: Path) -> None:
    info = json.loads((NETS / "lenet.json").read_text())
    theirs = np.load(NETS / "lenet.npz")
    text = with_inputs(read_net("lenet/train_val.prototxt"), pb.TRAIN, {"data": info["input_shape"], "label": (2,)})
    net = bpt.Net(write(tmp_path, str(text)), bpt.TRAIN)
    for param in info["params"]:
        what = (param["shape"], param["kind"], info["seed"], param["layer_idx"], param["blob"], param["gain"] or 1.0)
        net.params[param["layer"]][param["blob"]].data[...] = formula().fill(*what)
    data = formula().data(info["input_shape"], info["seed"], info["input_scale"])
    assert net.inputs == ["data", "label"]
    out = net.forward(data=data, label=formula().label(2, info["classes"], info["seed"]))
    assert_close(out["loss"], np.float32(info["losses"]["loss"]).reshape(()), "loss")
    for key in (key for key in theirs.files if key.startswith("top/")):
        assert_close(formula().sub(net.blobs[key.removeprefix("top/")].data), theirs[key], key)
    diffs = net.backward()
    assert_close(formula().sub(diffs["data"], 256), theirs["grad/data"], "diff of data")
    for key in (key for key in theirs.files if key.startswith("pgrad_sub/")):
        layer, index = key.removeprefix("pgrad_sub/").split("/")
        assert_close(formula().sub(net.params[layer][int(index)].diff, 32), theirs[key], key)


def set_params(net: bpt.Net, values: Mapping[str, np.ndarray], prefix: str) -> None:
    for key in (key for key in values if key.startswith(prefix)):
        layer, index = key.removeprefix(prefix).rsplit("/", 1)
        net.params[layer][int(index)].data[...] = values[key]


def check_params(net: bpt.Net, values: Mapping[str, np.ndarray], prefix: str) -> None:
    keys = [key for key in values if key.startswith(prefix)]
    assert len(keys) == sum(map(len, net.params.values()))
    for key in keys:
        layer, index = key.removeprefix(prefix).rsplit("/", 1)
        assert_close(net.params[layer][int(index)].data, values[key], key, TOLERANCE)


@pytest.mark.parametrize("name", ["SGD_mom_step_l2", "SGD_bn", "SGD_shared"])
def test_solver_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = next(run for run in json.loads((SOLVERS / "runs.json").read_text()) if run["name"] == name)
    theirs = dict(np.load(SOLVERS / "runs.npz"))
    for file in ("data.h5", "list.txt"):
        shutil.copy(SOLVERS / file, tmp_path)
    write(tmp_path, run["net"])
    with bpt.get_solver(write(tmp_path, run["solver"], "solver.prototxt")) as solver:
        set_params(solver.net, theirs, f"{name}/init/")
        weight = solver.net.params["conv1"][0].data
        losses = []
        while solver.iter < run["iters"]:
            solver.step(1)
            losses.append(float(solver.net.blobs["loss"].data))
            if solver.iter in (1, 10):
                check_params(solver.net, theirs, f"{name}/after{solver.iter}/")
        check_params(solver.net, theirs, f"{name}/final/")
        assert np.shares_memory(weight, solver.net.params["conv1"][0].data)
    assert_close(np.array(losses), theirs[f"{name}/loss"].astype(np.float64), "losses", TOLERANCE)


@pytest.mark.parametrize("name", ["Adam", "SGD_multistep"])
def test_a_run_with_snapshots(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bring(name, tmp_path)
    theirs = dict(np.load(SNAPSHOTS / name / "run.npz"))
    with bpt.get_solver("solver.prototxt") as solver:
        set_params(solver.net, theirs, "init/")
        losses = []
        for _ in range(25):
            solver.step(1)
            losses.append(float(solver.net.blobs["loss"].data))
            if solver.iter == 10:
                assert solver.snapshot() == "snap_iter_10.solverstate"
        assert_close(np.array(losses), theirs["loss"].astype(np.float64), "losses", TOLERANCE)
        check_params(solver.net, theirs, "final/")
    written: Any = caffe_class("NetParameter")()
    caffes: Any = caffe_class("NetParameter")()
    written.ParseFromString(Path("snap_iter_10.caffemodel").read_bytes())
    caffes.ParseFromString((SNAPSHOTS / name / "snap_iter_10.caffemodel").read_bytes())
    assert [layer.name for layer in written.layer] == [layer.name for layer in caffes.layer]
    for ours, layer in zip(written.layer, caffes.layer, strict=True):
        assert [list(blob.shape.dim) for blob in ours.blobs] == [list(blob.shape.dim) for blob in layer.blobs]
        for index, (mine, blob) in enumerate(zip(ours.blobs, layer.blobs, strict=True)):
            assert_close(np.array(mine.data), np.array(blob.data), f"snapshot: {layer.name}/{index}", TOLERANCE)


def test_going_on_from_caffes_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bring("Adam", tmp_path)
    theirs = np.load(SNAPSHOTS / "Adam" / "run.npz")["resumed_loss"]
    with bpt.get_solver("solver.prototxt") as solver:
        solver.restore(SNAPSHOTS / "Adam" / "snap_iter_10.solverstate")
        assert solver.iter == 10
        losses = []
        for _ in theirs:
            solver.step(1)
            losses.append(float(solver.net.blobs["loss"].data))
    assert_close(np.array(losses), theirs.astype(np.float64), "losses", TOLERANCE)
