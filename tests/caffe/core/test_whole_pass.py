"""A TEST net's whole pass runs as one and leaves blobs out, which nobody can tell but by the time it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import bpt
from bpt.nn.layers.base import DataLayer
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

CONV = 'convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.5 } }'
MAX = "pooling_param { kernel_size: 3 stride: 2 }"
# A convolution with all that is folded into it, a residual block, and a top that is read twice.
LAYERS = (
    layer("Convolution", "x", "a", CONV)
    + layer("BatchNorm", "a", "a", name="a_bn")
    + layer("Scale", "a", "a", "scale_param { bias_term: true filler { value: 1.5 } }", name="a_scale")
    + layer("ReLU", "a", "a", name="a_relu")
    + layer("Convolution", "a", "b", CONV)
    + layer("Eltwise", "a b", "sum")
    + layer("ReLU", "sum", "sum", name="sum_relu")
    + layer("Pooling", "sum", "pool", MAX)
    + layer("Dropout", "pool", "dropped")
    + inner_product("dropped", "ip", 3)
    + layer("Softmax", "ip", "prob")
)
TEXT = "force_backward: true " + inputs(x=(2, 3, 6, 6)) + LAYERS
X = numbers(2, 3, 6, 6)
OTHER = numbers(2, 3, 6, 6, seed=1)


def made(folder: Path, plain: bool = False, text: str = TEXT) -> bpt.Net:
    """A net that runs as one where it can, or one that never does."""
    net = bpt.Net(write(folder, text), bpt.TEST)
    for params in net.params.values():
        for index, param in enumerate(params):
            param.data[...] = numbers(*param.shape, seed=index + 5)
    for index, value in enumerate((0.5, 2, 1)):  # statistics
        if "a_bn" in net.params:
            net.params["a_bn"][index].data[...] = value
    if plain:
        net._operator.whole = None
    else:
        net.forward()  # layer by layer: the last pass's parameters were looked at
    return net


@pytest.fixture
def nets(tmp_path: Path) -> tuple[bpt.Net, bpt.Net]:
    return made(tmp_path), made(tmp_path, plain=True)


def left_out(net: bpt.Net) -> bool:
    """Whether the last pass has left blobs out, and none of them was made since."""
    return net._operator._samples is not None


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * max(1e-3, np.abs(expected).max()))


def all_same(net: bpt.Net, plain: bpt.Net) -> None:
    for name in plain.blobs:
        same(net.blobs[name].data, plain.blobs[name].data)


def test_outputs_and_all_other_blobs(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    for images in (X, OTHER):
        same(net.forward(x=images)["prob"], plain.forward(x=images)["prob"])
        assert left_out(net)
        all_same(net, plain)


def test_what_is_looked_at_is_made_at_once(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    for images in (X, OTHER, X):
        plain.forward(x=images)
        same(net.forward(["b"], x=images)["b"], plain.blobs["b"].data)
        same(net.blobs["pool"].data, plain.blobs["pool"].data)
    assert left_out(net)  # by the third time a pool is expected


def test_blobs_that_nobody_looks_at_any_more(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, _ = nets
    net.forward(x=X)
    assert net.blobs["a"].data is not None
    for _ in range(10):
        net.forward(x=X)
        assert "a" in kept(net)
    net.forward(x=X)
    assert kept(net) == {"prob"}


def kept(net: bpt.Net) -> set[str]:
    assert net._operator.whole is not None
    return {net._graph.edges[edge].blob for edge in net._operator.whole._keep}


def test_an_array_that_is_kept_shows_every_pass(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    array = net.blobs["sum"].data
    for images in (X, OTHER):
        net.forward(x=images)
        plain.forward(x=images)
        assert left_out(net)
        same(array, plain.blobs["sum"].data)


def test_blobs_are_those_of_the_pass_whatever_was_fed_since(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    fed = net.blobs["x"].data
    fed[...] = X
    net.forward()
    plain.forward(x=X)
    fed[...] = OTHER
    prob = net.blobs["prob"].data
    prob[...] = 7
    same(net.blobs["b"].data, plain.blobs["b"].data)
    assert np.array_equal(fed, OTHER)
    assert (prob == 7).all()
    same(net.forward()["prob"], plain.forward(x=OTHER)["prob"])


def scaled_by_array(net: bpt.Net, folder: Path) -> None:
    net.params["b"][0].data[...] *= 2


def from_file(net: bpt.Net, folder: Path) -> None:
    other = made(folder, plain=True)
    other.params["b"][0].data[...] *= 2
    other.save(folder / "w.caffemodel")
    net.copy_from(folder / "w.caffemodel")


@pytest.mark.parametrize("change", [scaled_by_array, from_file])
@pytest.mark.parametrize(("blob", "passes"), [("b", 1), ("prob", 1), ("prob", 4)])
def test_parameters_that_change(
    nets: tuple[bpt.Net, bpt.Net], change: Callable[[bpt.Net, Path], None], blob: str, passes: int, tmp_path: Path
) -> None:
    """Blobs of the pass before are by the old ones, those of the next by the new ones."""
    net, plain = nets
    for _ in range(passes):  # the third one runs as a program
        net.forward(x=X)
    plain.forward(x=X)
    for each in nets:
        change(each, tmp_path)
    same(net.blobs[blob].data, plain.blobs[blob].data)
    for images in (OTHER, X, OTHER):
        same(net.forward(x=images)["prob"], plain.forward(x=images)["prob"])
        same(net.blobs[blob].data, plain.blobs[blob].data)


def test_a_parameters_array_that_is_written_to_much_later(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    net.forward(x=X)
    corner = net.params["b"][0].data[0, 0]  # a view of the array, which alone is kept
    for factor in (1, 3, 1, 5):
        corner *= factor
        plain.params["b"][0].data[0, 0] *= factor
        same(net.forward(x=X)["prob"], plain.forward(x=X)["prob"])
        assert not left_out(net)
        same(net.blobs["b"].data, plain.blobs["b"].data)
    corner *= 2
    plain.params["b"][0].data[0, 0] *= 2
    del corner
    for _ in range(2):
        same(net.forward(x=X)["prob"], plain.forward(x=X)["prob"])
    assert left_out(net)


def test_backward(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    diff = numbers(2, 3, seed=4)
    for images in (X, OTHER):
        for each in nets:
            each.clear_param_diffs()
            each.forward(x=images)
            each.blobs["prob"].data[0] = 0.25  # the softmax's gradient goes by its top
            each.backward(prob=diff)
        for name in ("x", "sum", "ip"):
            same(net.blobs[name].diff, plain.blobs[name].diff)
        same(net.params["a"][0].diff, plain.params["a"][0].diff)


def test_parts(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    for each in nets:
        each.forward(x=X)
        each.blobs["sum"].data[:, 0] = 0
        each.forward(start="pool")
    all_same(net, plain)
    for each in nets:
        each.forward(x=X)
        each.forward(x=X)
        each.forward(x=OTHER, end="a_relu")  # what is behind that is still the pass's before
    all_same(net, plain)


def test_other_shapes(nets: tuple[bpt.Net, bpt.Net]) -> None:
    net, plain = nets
    net.forward(x=X)
    for size in (1, 5):
        for each in nets:
            each.blobs["x"].reshape(size, 3, 6, 6)
            each.forward(x=numbers(size, 3, 6, 6))
        assert left_out(net)
        all_same(net, plain)


def test_an_input_rewritten_in_place(tmp_path: Path) -> None:
    """The next pass goes on from what stands there."""
    double = layer("Power", "x", "x", "power_param { scale: 2 }", name="double")
    net = made(tmp_path, text=inputs(x=(2,)) + double + layer("TanH", "x", "t"))
    net.forward(x=[1, 2])
    assert net.forward()["t"] == pytest.approx(np.tanh([4, 8]))
    assert left_out(net)
    assert net.blobs["x"].data.tolist() == [4, 8]


def test_batches_are_drawn_once(tmp_path: Path) -> None:
    drawn = (
        'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } '
        'data_filler { type: "gaussian" std: 1 } } }'
    )
    random = layer("Dropout", "x", "r", "phase: TEST")
    nets = [made(tmp_path, plain, drawn + random + LAYERS) for plain in (False, True)]
    nets[1].forward()
    for _ in range(3):
        probs = [net.forward()["prob"] for net in nets]
        same(*probs)
        all_same(*nets)


def test_samples_of_a_source(tmp_path: Path) -> None:
    memory = "memory_data_param { batch_size: 1 channels: 3 height: 6 width: 6 }"
    nets = [made(tmp_path, True, layer("MemoryData", "", "x y", memory, name="m") + LAYERS) for _ in range(2)]
    nets[0]._operator.whole = bpt.caffe.core.net.WholePass(nets[0]._operator.net)
    for net in nets:
        net.set_input_arrays(X, np.arange(2))
    assert any(isinstance(each, DataLayer) for each in nets[0]._operator.net.layers)
    for turn in range(3):
        same(*(net.forward()["prob"] for net in nets))
        nets[0].blobs["x"].data[...] = 9
        nets[1].blobs["x"].data[...] = 9
        all_same(*nets)
        assert nets[0].blobs["y"].data.ravel().tolist() == [turn % 2]


@pytest.mark.parametrize(
    "more",
    [
        layer("BatchNorm", "x", "n", "batch_norm_param { use_global_stats: false }"),
        layer("LSTM", "x cont", "n", 'recurrent_param { num_output: 2 weight_filler { type: "xavier" } }'),
    ],
)
def test_layers_that_remember_run_once_a_pass(more: str, tmp_path: Path) -> None:
    net = made(tmp_path, text=inputs(x=(3, 2, 4), cont=(3, 2)) + more)
    net.forward(x=numbers(3, 2, 4), cont=np.ones((3, 2)))
    assert not left_out(net)


def test_blobs_that_lie_in_one_memory(tmp_path: Path) -> None:
    """Dropout hands its bottom on, of which it is apart; a Flatten's top is its bottom's memory."""
    text = inputs(x=(2, 3)) + inner_product("x", "a", 4) + layer("Dropout", "a", "b") + layer("Flatten", "b", "c")
    nets = made(tmp_path, text=text), made(tmp_path, plain=True, text=text)
    for net in nets:
        for _ in range(2):
            net.forward(["a", "b"], x=numbers(2, 3))
            net.blobs["b"].data[...] = 3
    all_same(*nets)


def test_a_net_of_which_only_a_blob_is_left(tmp_path: Path) -> None:
    net, plain = made(tmp_path), made(tmp_path, plain=True)
    net.forward(x=X)
    plain.forward(x=X)
    blob = net.blobs["b"]
    del net
    same(blob.data, plain.blobs["b"].data)


def test_a_solvers_nets_run_layer_by_layer(tmp_path: Path) -> None:
    """Their parameters change by training, and through the arrays of other nets."""
    write(tmp_path, TEXT.replace("force_backward: true", ""))
    solver = write(
        tmp_path,
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 '
        "test_iter: 1 test_interval: 9 test_initialization: false snapshot_after_train: false",
        "s.prototxt",
    )
    with bpt.get_solver(solver) as made_solver:
        for net in (made_solver.net, *made_solver.test_nets):
            net.forward(x=X)
            assert not left_out(net)


def test_no_gradients_are_prepared_for(nets: tuple[bpt.Net, bpt.Net]) -> None:
    """What a pass leaves behind is its outputs and its samples, no graph of autograd's."""
    net, _ = nets
    net.forward(x=X)
    assert not any(
        net._operator.batches.outcome.segments.get(index) for index, node in enumerate(net._graph.nodes) if node.bottoms
    )
    assert all(isinstance(value, torch.Tensor) and not value.requires_grad for value in net._operator.values.values())
