"""net.set_input_arrays: MemoryData gets its arrays, in a net and in a solver's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bpt
from bpt.base.errors import LayerError, UserError
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

SIZES = "memory_data_param { batch_size: 2 channels: 3 height: 1 width: 1 }"
TEXT = layer("MemoryData", "", "data label", SIZES, name="mem") + inner_product("data", "ip", 2)
DATA, LABELS = numbers(6, 3, 1, 1), np.array([0, 1, 1, 0, 1, 0], np.float32)


def test_forward_reads_the_arrays(tmp_path: Path) -> None:
    with bpt.Net(write(tmp_path, TEXT), bpt.TEST) as net:
        net.set_input_arrays(DATA, LABELS.reshape(-1, 1, 1, 1))
        weight, bias = (blob.data for blob in net.params["ip"])
        for rows in ([0, 1], [2, 3], [4, 5], [0, 1]):
            ip = net.forward()["ip"]
            np.testing.assert_allclose(ip, DATA[rows].reshape(2, 3) @ weight.T + bias, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(net.blobs["label"].data, LABELS[rows].reshape(2, 1, 1, 1))


def test_a_solver_trains_on_them(tmp_path: Path) -> None:
    """One step against arithmetic by hand: softmax's gradient."""
    write(tmp_path, TEXT + layer("SoftmaxWithLoss", "ip label", "loss"))
    settings = 'base_lr: 0.5 lr_policy: "fixed" max_iter: 3 snapshot_after_train: false'
    path = write(tmp_path, f'net: "{tmp_path}/net.prototxt" {settings}', "solver.prototxt")
    with bpt.get_solver(path) as solver, pytest.raises(LayerError, match=r'layer "mem": has no data yet'):
        solver.step(1)
    with bpt.get_solver(path) as solver:
        solver.net.set_input_arrays(DATA, LABELS)
        weight, bias = (blob.data.copy() for blob in solver.net.params["ip"])
        solver.step(1)
        x, y = DATA[:2].reshape(2, 3), LABELS[:2].astype(int)
        scores = np.exp(x @ weight.T + bias)
        slope = scores / scores.sum(1, keepdims=True) - np.eye(2)[y]
        np.testing.assert_allclose(
            solver.net.params["ip"][0].data, weight - 0.5 * slope.T @ x / 2, rtol=1e-4, atol=1e-6
        )


def test_what_is_refused(tmp_path: Path) -> None:
    with bpt.Net(write(tmp_path, TEXT), bpt.TEST) as net, pytest.raises(UserError, match="multiple of its batch_size"):
        net.set_input_arrays(DATA[:3], LABELS[:3])
    with (
        bpt.Net(write(tmp_path, TEXT), bpt.TEST) as net,
        pytest.raises(UserError, match="data must be an array of numbers"),
    ):
        net.set_input_arrays(["a", "b"], LABELS[:2])
    plain = inputs(data=(2, 3)) + inner_product("data", "ip", 2)
    with bpt.Net(write(tmp_path, plain), bpt.TEST) as net, pytest.raises(UserError, match="and the net has none"):
        net.set_input_arrays(DATA, LABELS)
