"""Inputs of other shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bpt
from bpt.base.errors import LayerError
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

CONV = layer("Convolution", "x", "c", "convolution_param { num_output: 2 kernel_size: 3 bias_term: false }")


def make(folder: Path, text: str) -> bpt.Net:
    return bpt.Net(write(folder, "force_backward: true " + text), bpt.TEST)


def test_the_next_pass_carries_it_on(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 1, 5, 5)) + CONV)
    net.params["c"][0].data[...] = 1
    net.blobs["x"].reshape(2, 1, 4, 3)
    assert net.blobs["x"].shape == (2, 1, 4, 3)
    assert not net.blobs["x"].data.any()
    x = numbers(2, 1, 4, 3)
    net.blobs["x"].data[...] = x
    out = net.forward()["c"]
    expected = np.stack([x[:, 0, i : i + 3].sum((1, 2)) for i in (0, 1)], 1)
    np.testing.assert_allclose(out[:, 1, :, 0], expected, rtol=1e-5)
    net.backward(c=np.ones((2, 2, 2, 1)))
    assert net.blobs["x"].diff.shape == (2, 1, 4, 3)
    assert net.blobs["x"].diff[0, 0].tolist() == [[2, 2, 2], [4, 4, 4], [4, 4, 4], [2, 2, 2]]


def test_or_reshape_does(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 1, 5, 5)) + CONV)
    net.forward()
    old = net.blobs["c"].data
    net.blobs["x"].reshape(1, 1, 3, 8)
    net.blobs["x"].data[...] = 1
    assert net.blobs["c"].shape == (1, 2, 3, 3)
    net.reshape()
    assert net.blobs["c"].shape == (1, 2, 1, 6)
    assert old.shape == (1, 2, 3, 3)
    assert net.blobs["x"].data.all()
    assert net.forward()["c"].shape == (1, 2, 1, 6)


def test_a_pass_to_a_layer_reshapes_no_further(tmp_path: Path) -> None:
    """As Caffe's ForwardFromTo: what comes behind need not be able to work on the new shapes."""
    half = layer("Power", "c", "p", "power_param { scale: 0.5 }")
    net = make(tmp_path, inputs(x=(1, 1, 5, 5)) + CONV + half + inner_product("p", "y", 2))
    net.params["c"][0].data[...] = 1
    net.blobs["x"].reshape(1, 1, 8, 8)
    net.blobs["x"].data[...] = 1
    assert net.forward(end="c")["c"].tolist() == np.full((1, 2, 6, 6), 9.0).tolist()
    assert net.blobs["p"].shape == (1, 2, 3, 3)
    net.blobs["c"].data[...] = 4  # and what it has made stays when the next pass goes on from there
    assert net.forward(start="p", end="p")["p"].tolist() == np.full((1, 2, 6, 6), 2.0).tolist()
    net.blobs["p"].diff[...] = 1
    net.backward(start="p", end="p")
    assert net.blobs["c"].diff.tolist() == np.full((1, 2, 6, 6), 0.5).tolist()
    for _ in range(2):
        with pytest.raises(LayerError, match='layer "y": the new input shape would change parameter 0'):
            net.forward()
    net.blobs["x"].reshape(1, 1, 5, 5)
    assert net.forward()["y"].shape == (1, 2)


def test_what_was_written_before_is_gone(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 2)) + layer("Power", "x", "y", "power_param { scale: 2 }"))
    kept = net.blobs["x"].data
    kept[...] = 3
    assert net.blobs["x"].diff.shape == (1, 2)
    net.blobs["x"].reshape(4, 2)
    assert not net.blobs["x"].diff.any()
    assert net.blobs["x"].diff.shape == (4, 2)
    assert net.forward()["y"].tolist() == [[0, 0]] * 4
    net.blobs["x"].data[...] = 3
    net.blobs["x"].reshape(5, 2)
    net.blobs["x"].reshape(4, 2)  # and back
    x = net.blobs["x"].data
    assert not x.any()
    x[...] = 5
    assert net.forward()["y"].tolist() == [[10, 10]] * 4
    assert kept.tolist() == [[3, 3]]


def test_the_same_shape_keeps_the_data(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 1, 5, 5)) + CONV)
    net.blobs["x"].data[...] = 3
    net.blobs["x"].reshape(1, 1, 5, 5)
    net.reshape()
    assert (net.blobs["x"].data == 3).all()
    net.forward()
    assert (net.blobs["x"].data == 3).all()


def test_only_the_batch_of_one_of_several_inputs(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(2, 3), y=(2, 3)) + layer("Concat", "x y", "z", "concat_param { axis: 0 }"))
    net.blobs["y"].data[...] = 5
    net.blobs["x"].reshape(1, 3)
    assert net.forward(x=[[1, 2, 3]])["z"].tolist() == [[1, 2, 3], [5, 5, 5], [5, 5, 5]]


def test_in_place_and_in_the_solvers_net(tmp_path: Path) -> None:
    text = inputs(x=(2, 3)) + inner_product("x", "y", 2) + layer("ReLU", "y", "y", name="relu")
    write(tmp_path, text + layer("Flatten", "y", "sum", "loss_weight: 1"))
    solver_text = f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "s"'
    with bpt.get_solver(write(tmp_path, solver_text, "solver.prototxt")) as solver:
        solver.net.blobs["x"].reshape(5, 3)
        solver.net.blobs["x"].data[...] = 1
        before = solver.net.params["y"][1].data.copy()
        active = solver.net.forward()["sum"].copy() > 0
        assert active.shape == (5, 2)
        solver.step(1)
        np.testing.assert_allclose(solver.net.params["y"][1].data, before - 0.1 * active.sum(0), rtol=1e-5)


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 3, 4)) + inner_product("x", "ip", 2))
    net.blobs["x"].reshape(1, 3, 5)
    for act in (net.forward, net.reshape):
        with pytest.raises(LayerError) as caught:
            act()
        assert str(caught.value).endswith(
            'layer "ip": the new input shape would change parameter 0 from (2, 12) to (2, 15)'
        )
    net.blobs["x"].reshape(7, 3, 4)
    assert net.forward()["ip"].shape == (7, 2)
    net.blobs["x"].reshape(7, 3, 4, 2)
    net.blobs["x"].reshape(2, 12)
    assert net.forward(x=np.ones((2, 12)))["ip"].shape == (2, 2)


def test_a_shape_that_a_layer_cannot_take(tmp_path: Path) -> None:
    net = make(tmp_path, inputs(x=(1, 1, 5, 5)) + CONV)
    net.blobs["x"].reshape(1, 1, 2, 2)
    with pytest.raises(LayerError, match=r'layer "c": .*shape \(1, 1, 2, 2\)'):
        net.forward()
