"""Which blobs are one memory, and which are not, as in Caffe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import bpt
from bpt.config.proto import bpt_pb2 as pb
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

DOUBLE = layer("Power", "x", "x", "power_param { scale: 2 }", name="double")


class TestInPlace:
    def test_a_part_of_the_net_goes_on_from_what_stands_there(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, inputs(x=(2,)) + DOUBLE + layer("TanH", "x", "t")), bpt.TEST)
        x = net.blobs["x"].data
        x[...] = [1, 2]
        net.forward()
        assert x.tolist() == [2, 4]
        net.forward(start="double")
        assert x.tolist() == [4, 8]
        np.testing.assert_allclose(net.blobs["t"].data, np.tanh([4, 8]), rtol=1e-6)

    def test_so_does_backward(self, tmp_path: Path) -> None:
        text = "force_backward: true " + inputs(x=(2,)) + DOUBLE
        text += layer("Power", "x", "x", "power_param { scale: 3 }", name="triple")
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        net.forward()
        net.blobs["x"].diff[...] = [1, 2]
        net.backward(end="triple")
        assert net.blobs["x"].diff.tolist() == [3, 6]
        net.backward(start="double")
        assert net.blobs["x"].diff.tolist() == [6, 12]
        net.backward(x=[1, 1])
        assert net.blobs["x"].diff.tolist() == [6, 6]

    def test_a_loss_in_place_keeps_its_weight(self, tmp_path: Path) -> None:
        text = inputs(x=(2, 2)) + inner_product("x", "y", 2)
        text += layer("Power", "y", "y", "power_param { scale: 2 } loss_weight: 0.5", name="double")
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        net.forward(x=[[1, 2], [3, 4]])
        for times in (1, 2):
            net.backward()
            # d(0.5 · 2 · Σ (W x + b)) / dW = Σ x
            assert net.params["y"][0].diff.tolist() == [[4 * times, 6 * times]] * 2

    @pytest.mark.parametrize("keep", [False, True])
    def test_gradients_that_need_the_replaced_data(self, keep: bool, tmp_path: Path) -> None:
        """Scale's gradient by its factor is Σ x · dy; x is what Scale itself has replaced by then."""
        scale = "scale_param { filler { value: 10 } }"
        text = inputs(x=(2, 1)) + layer("Scale", "x", "x", scale, name="scale")
        text += layer("Flatten", "x", "sum", "loss_weight: 1")
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        x = net.blobs["x"].data
        x[...] = [[3], [4]]
        kept = [x] if keep else []
        del x
        net.forward()
        assert net.blobs["x"].data.tolist() == [[30], [40]]
        net.backward()
        assert net.params["scale"][0].diff.tolist() == [7]
        assert all(array.tolist() == [[30], [40]] for array in kept)

    def test_the_replaced_data_of_a_part(self, tmp_path: Path) -> None:
        scale = "scale_param { filler { value: 10 } }"
        text = inputs(x=(2, 1)) + layer("Power", "x", "y") + layer("Scale", "y", "y", scale, name="scale")
        text += layer("Flatten", "y", "sum", "loss_weight: 1")
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        net.forward(x=[[3], [4]], end="y")
        y = net.blobs["y"].data
        net.forward(start="scale")
        assert y.tolist() == [[30], [40]]
        net.backward()
        assert net.params["scale"][0].diff.tolist() == [7]


class TestApart:
    def test_parts_of_a_slice_are_copies(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, inputs(x=(2, 2)) + layer("Slice", "x", "a b", name="cut")), bpt.TEST)
        net.forward(x=[[1, 2], [3, 4]])
        net.blobs["a"].data[...] = 9
        out = net.forward(start="cut")
        assert out["a"].tolist() == [[1], [3]]
        assert net.blobs["x"].data.tolist() == [[1, 2], [3, 4]]

    def test_dropout_that_hands_on_its_bottom_makes_a_copy(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, inputs(x=(2,)) + layer("Dropout", "x", "y")), bpt.TEST)
        net.forward(x=[1, 2])
        net.blobs["y"].data[...] = 9
        assert net.forward(start="y")["y"].tolist() == [1, 2]

    def test_two_losses_without_a_top(self, tmp_path: Path) -> None:
        text = inputs(x=(1, 2), y=(1,)) + inner_product("x", "ip", 2)
        for name, weight in (("a", 1), ("b", 10)):
            text += layer("SoftmaxWithLoss", "ip y", more=f"loss_weight: {weight}", name=name)
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        net.forward(x=[[1, 2]])
        net.backward()
        first, second = (net.blobs[f"ip_ip_0_split_{copy}"].diff for copy in (0, 1))
        np.testing.assert_allclose(second, 10 * first, rtol=1e-6)


class TestSharedParameters:
    def test_layers_that_share_have_one_memory(self, tmp_path: Path) -> None:
        shared = 'param { name: "w" } param { name: "b" }'
        text = inputs(x=(2, 3)) + inner_product("x", "a", 3, shared) + inner_product("a", "b", 3, shared)
        net = bpt.Net(write(tmp_path, text + layer("Flatten", "b", "sum", "loss_weight: 1")), bpt.TRAIN)
        weight, diff = net.params["b"][0].data, net.params["b"][0].diff
        net.params["a"][0].data[...] = 2
        net.params["a"][1].data[...] = 0
        net.forward(x=np.ones((2, 3)))
        assert net.blobs["b"].data.tolist() == [[36] * 3] * 2
        assert weight.tolist() == [[2] * 3] * 3
        net.backward()
        # dW = dbᵀ a + daᵀ x with db = 1, a = 6, da = W 1 = 6, x = 1; over two samples
        assert diff.tolist() == net.params["a"][0].diff.tolist() == [[24] * 3] * 3

    def test_each_sees_it_in_its_own_shape(self, tmp_path: Path) -> None:
        def shared(mode: str) -> str:
            return f'param {{ name: "w" share_mode: {mode} }}'

        text = inputs(x=(1, 3)) + inner_product("x", "a", 2, shared("STRICT"))
        net = bpt.Net(write(tmp_path, text + inner_product("a", "b", 3, shared("PERMISSIVE"))), bpt.TEST)
        net.params["b"][0].data[2, 1] = 7
        net.params["b"][0].diff[2, 1] = 8
        assert (net.params["a"][0].data[1, 2], net.params["a"][0].diff[1, 2]) == (7, 8)


def test_blobs_in_another_order_of_memory(tmp_path: Path) -> None:
    conv = 'convolution_param { num_output: 3 kernel_size: 2 weight_filler { type: "xavier" } }'
    text = "force_backward: true " + inputs(x=(2, 3, 4, 4)) + layer("Convolution", "x", "c", conv)
    nets = [bpt.Net(write(tmp_path, text), bpt.TRAIN) for _ in range(2)]
    nets[1]._operator.engine = pb.SolverParameter.CHANNELS_LAST
    kept = []
    for net in nets:
        kept.append([net.blobs["c"].data, net.blobs["c"].diff, net.params["c"][0].diff, net.blobs["x"].diff])
        for _ in range(2):
            net.forward(x=numbers(2, 3, 4, 4))
            net.blobs["c"].data[0, 0] = 7
            net.backward(c=numbers(2, 3, 3, 3))
    assert nets[1]._operator.values[1].is_contiguous(memory_format=torch.channels_last)
    for array, expected in zip(kept[1], kept[0], strict=True):
        assert array.flags.c_contiguous
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    assert (kept[1][0][0, 0] == 7).all()


def test_every_pass_drops_other_elements(tmp_path: Path) -> None:
    text = "force_backward: true " + inputs(x=(1000,)) + layer("Dropout", "x", "y")
    net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
    passes = []
    for _ in range(2):
        passes.append(net.forward(x=np.ones(1000))["y"].copy())
        diff = net.backward(y=np.ones(1000))["x"]
        np.testing.assert_array_equal(diff, passes[-1])  # by the mask of its own pass
    assert (passes[0] != passes[1]).any()


def test_zeros_for_what_no_backward_pass_reaches(tmp_path: Path) -> None:
    net = bpt.Net(write(tmp_path, inputs(x=(2, 3)) + inner_product("x", "y", 4)), bpt.TEST)
    net.forward(x=numbers(2, 3))
    assert not net.backward(y=np.ones((2, 4)))["x"].any()  # nothing leads to a loss, as in Caffe
    assert not net.params["y"][0].diff.any()
