"""The Python interface on a GPU: arrays are copies there, and must be kept equal to the tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from tests.support.paths import PROTOTXT
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.gpu
TOLERANCE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}  # kernels may round to fewer digits there


def test_passes_give_what_they_give_on_the_cpu() -> None:
    path = str(PROTOTXT / "cifar10_full" / "deploy.prototxt")
    nets = [bpt.Net(path, bpt.TEST, device=device) for device in ("cpu", "cuda")]
    results = []
    for net in nets:
        kept = net.blobs["conv1"].data
        net.blobs["data"].data[...] = numbers(*net.blobs["data"].shape)
        net.params["conv1"][0].data[...] *= 100
        net.forward()
        results.append({name: blob.data.copy() for name, blob in net.blobs.items()} | {"kept": kept})
    assert next(nets[1]._operator.net.parameters()).is_cuda
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, **TOLERANCE, err_msg=name)


def test_training_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = inputs(x=(8, 3), y=(8,)) + inner_product("x", "ip1", 9) + layer("ReLU", "ip1", "ip1", name="relu")
    write(tmp_path, text + inner_product("ip1", "ip2", 2) + layer("SoftmaxWithLoss", "ip2 y", "loss"))
    text = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 9 random_seed: 1'
    write(tmp_path, text, "solver.prototxt")
    results = []
    for device in ("cpu", "cuda"):
        solver = bpt.get_solver("solver.prototxt", device=device)
        x, y = solver.net.blobs["x"].data, solver.net.blobs["y"].data
        weight, diff = solver.net.params["ip1"][0].data, solver.net.params["ip1"][0].diff
        losses = []
        for step in range(4):
            x[...], y[...] = numbers(8, 3, seed=step), np.arange(8) % 2
            solver.step(1)
            losses.append(float(solver.net.blobs["loss"].data))
        weight[0] = 1
        solver.net.forward()
        solver.net.backward()
        solver.net.save(f"{device}.caffemodel")
        saved = bpt.Net("net.prototxt", bpt.TRAIN, f"{device}.caffemodel").params["ip1"][0].data
        np.testing.assert_array_equal(saved, weight)
        results.append([np.array(losses), weight.copy(), diff.copy(), solver.net.blobs["ip1"].diff])
    for on_cpu, on_gpu in zip(*results, strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, **TOLERANCE)


def test_the_text_chooses_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, inputs(x=(8, 3)) + inner_product("x", "ip1", 9, "loss_weight: 1"))
    write(tmp_path, 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 9 solver_mode: GPU', "s.prototxt")
    solver = bpt.get_solver("s.prototxt")
    assert all(parameter.is_cuda for parameter in solver.net._operator.net.parameters())
    solver.step(1)
