"""What a net says of its layers and blobs, and forward_all, share_with and callbacks, which go through them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from bpt.base.errors import UserError
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

# x is read twice, so a Split stands between; "ip" is shared by name with other nets.
TEXT = (
    "force_backward: true "
    + inputs(x=(2, 3))
    + inner_product("x", "ip", 4)
    + layer("ReLU", "ip", "ip", name="relu")
    + layer("Reduction", "x", "sum", "loss_weight: 3")
)


@pytest.fixture
def net(tmp_path: Path) -> bpt.Net:
    return bpt.Net(write(tmp_path, TEXT), bpt.TRAIN)


class TestStructure:
    def test_names(self, net: bpt.Net) -> None:
        split = ["x_in_0_split_0", "x_in_0_split_1"]
        assert net._layer_names == ["in", "x_in_0_split", "ip", "relu", "sum"]
        assert net.top_names == {"in": ["x"], "x_in_0_split": split, "ip": ["ip"], "relu": ["ip"], "sum": ["sum"]}
        assert list(net.top_names) == net._layer_names
        assert net.bottom_names["in"] == []
        assert net.bottom_names["x_in_0_split"] == ["x"]
        assert net.bottom_names["relu"] == ["ip"]
        assert net._blob_names == list(net.blobs) == ["x", *split, "ip", "sum"]
        assert (net._inputs, net._outputs) == ([0], [3, 4])
        assert (net._top_ids(3), net._bottom_ids(2)) == ([3], [1])
        assert net.blob_loss_weights == {"x": 0, **dict.fromkeys(split, 0), "ip": 0, "sum": 3}
        assert net._blob_loss_weights == [0, 0, 0, 0, 3]

    def test_layers(self, net: Any) -> None:
        assert [each.type for each in net.layers] == ["Input", "Split", "InnerProduct", "ReLU", "Reduction"]
        assert {name: each.type for name, each in net.layer_dict.items()}["relu"] == "ReLU"
        assert [len(each.blobs) for each in net.layers] == [0, 0, 2, 0, 0]
        net.layers[2].blobs[0].data[...] = 7
        assert (net.params["ip"][0].data == 7).all()
        blob = net.layers[2].blobs[1]
        assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (4, 1, 1, 1, 4)
        assert repr(net.layers[3]) == '<layer "relu" of type ReLU>'

    def test_a_python_layer_is_the_users_own_object(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As py-faster-rcnn sets the boxes that its data layer hands out."""
        (tmp_path / "its_layers.py").write_text(
            "import caffe\n"
            "class Boxes(caffe.Layer):\n"
            "    def setup(self, bottom, top):\n        self.boxes = None\n        top[0].reshape(1, 4)\n"
            "    def reshape(self, bottom, top): pass\n"
            "    def forward(self, bottom, top):\n        import caffe\n        top[0].reshape(*self.boxes.shape)\n"
            "        top[0].data[...] = self.boxes\n"
        )
        text = layer("Python", "", "b", 'python_param { module: "its_layers" layer: "Boxes" }')
        text += layer("Power", "b", "c", "power_param { scale: 2 }")
        monkeypatch.syspath_prepend(tmp_path)
        net = bpt.Net(write(tmp_path, text), bpt.TEST)
        boxes: Any = net.layers[0]
        assert (type(boxes).__name__, boxes.type, len(boxes.blobs)) == ("Boxes", "Python", 0)
        assert boxes.boxes is None  # it is set up
        boxes.boxes = numbers(1, 4)
        np.testing.assert_array_equal(net.forward()["c"], 2 * numbers(1, 4))
        assert "caffe" in sys.modules  # by the import in forward
        del sys.modules["caffe"]


class TestAllBatches:
    def test_forward_all(self, net: bpt.Net) -> None:
        samples = numbers(5, 3)
        out = net.forward_all(["ip"], x=samples)
        weights, bias = (blob.data for blob in net.params["ip"])
        np.testing.assert_allclose(out["ip"], np.maximum(samples @ weights.T + bias, 0), rtol=1e-4, atol=1e-5)
        assert out["sum"].shape == (3,)  # one for each batch
        np.testing.assert_allclose(out["sum"], [samples[:2].sum(), samples[2:4].sum(), samples[4].sum()], rtol=1e-4)

    def test_forward_backward_all(self, net: bpt.Net) -> None:
        samples, diffs = numbers(3, 3), numbers(3, 4, seed=1)
        data, gradients = net.forward_backward_all(diffs=["ip"], x=samples, ip=diffs)
        np.testing.assert_array_equal(data["ip"], net.forward_all(x=samples)["ip"])
        expected = 3 + (diffs * (data["ip"] > 0)) @ net.params["ip"][0].data
        np.testing.assert_allclose(gradients["x"], expected, rtol=1e-4, atol=1e-5)
        assert gradients["ip"].shape == (3, 4)

    def test_mistakes(self, net: bpt.Net) -> None:
        for call, why in (
            (net.forward_all, "the net's inputs are x; given none"),
            (lambda: net.forward_all(y=numbers(2, 3)), "the net's inputs are x; given y"),
            (lambda: net.forward_all(x=numbers(2, 4)), r'blob "x" has rows of shape \(3,\), given rows of \(4,\)'),
            (lambda: net.forward_backward_all(x=numbers(2, 3), y=1), "the net's inputs are x; given x, y"),
        ):
            with pytest.raises(UserError, match=why):
                call()


class TestShareWith:
    def test_one_memory(self, tmp_path: Path) -> None:
        first = bpt.Net(write(tmp_path, TEXT), bpt.TRAIN)
        other = inputs(x=(1, 3)) + inner_product("x", "ip", 4) + inner_product("ip", "own", 2)
        second = bpt.Net(write(tmp_path, other, "other.prototxt"), bpt.TEST)
        own = second.params["own"][0].data.copy()
        before = second.params["ip"][0].data
        second.share_with(first)
        kept = second.params["ip"][0].data
        assert not np.shares_memory(before, kept)
        first.params["ip"][0].data[...] = numbers(4, 3)
        first.params["ip"][1].data[...] = 0
        np.testing.assert_array_equal(kept, numbers(4, 3))
        x = numbers(1, 3, seed=2)
        np.testing.assert_allclose(second.forward(["ip"], x=x)["ip"], x @ numbers(4, 3).T, rtol=1e-4)
        second.params["ip"][0].data[...] *= 2
        np.testing.assert_array_equal(first.params["ip"][0].data, 2 * numbers(4, 3))
        np.testing.assert_array_equal(second.params["own"][0].data, own)
        first.save(tmp_path / "w.caffemodel")
        kept[...] = 0
        first.copy_from(tmp_path / "w.caffemodel")
        np.testing.assert_array_equal(kept, 2 * numbers(4, 3))

    def test_other_shapes_are_refused(self, net: bpt.Net, tmp_path: Path) -> None:
        other = bpt.Net(write(tmp_path, inputs(x=(1, 3)) + inner_product("x", "ip", 5), "o.prototxt"), bpt.TEST)
        with pytest.raises(UserError, match=r'layer "ip": parameter 0 is \(5, 3\) on cpu'):
            other.share_with(net)


class TestCallbacks:
    def test_each_layer_is_told(self, net: bpt.Net) -> None:
        seen: list[tuple[str, int]] = []
        for name in ("before_forward", "after_forward", "before_backward", "after_backward"):
            getattr(net, name)(lambda number, name=name: seen.append((name, number)))
        net.forward(end="ip")
        assert seen == [(f"{when}_forward", number) for number in range(3) for when in ("before", "after")]
        seen.clear()
        net.forward()
        net.backward(start="relu", end="relu")
        assert seen[10:] == [("before_backward", 3), ("after_backward", 3)]

    def test_they_see_and_change_blobs_in_the_middle_of_a_pass(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, TEXT), bpt.TEST)
        kept = net.blobs["ip"].data
        seen = []

        def change(number: int) -> None:
            if net._layer_names[number] == "relu":
                seen.append(kept.copy())
                net.blobs["ip"].data[...] = -1

        net.before_forward(change)
        out = net.forward(x=numbers(2, 3))
        assert not out["ip"].any()
        weights, bias = (blob.data for blob in net.params["ip"])
        np.testing.assert_allclose(seen[0], numbers(2, 3) @ weights.T + bias, rtol=1e-4, atol=1e-5)
