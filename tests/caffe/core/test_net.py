"""bpt.Net does what pycaffe's does: passes, and what is read from and written to blobs between them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import bpt
from bpt.base.errors import UserError
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

# ip1 is rewritten in place, and read twice.
TEXT = (
    "force_backward: true "
    + inputs(data=(4, 3), label=(4,))
    + inner_product("data", "ip1", 5)
    + layer("ReLU", "ip1", "ip1", name="relu1")
    + inner_product("ip1", "ip2", 2)
    + inner_product("ip1", "side", 2)
    + layer("Eltwise", "ip2 side", "sum")
    + layer("SoftmaxWithLoss", "sum label", "loss")
)
LABELS = np.array([0, 1, 1, 0], np.float32)


@pytest.fixture
def net(tmp_path: Path) -> bpt.Net:
    made = bpt.Net(write(tmp_path, TEXT), bpt.TRAIN)
    made.blobs["data"].data[...] = numbers(4, 3)
    made.blobs["label"].data[...] = LABELS
    return made


def by_hand(net: bpt.Net, data: np.ndarray) -> dict[str, np.ndarray]:
    """The blobs, computed from the net's parameters."""
    weights = {name: [blob.data.copy() for blob in blobs] for name, blobs in net.params.items()}

    def product(x: np.ndarray, name: str) -> np.ndarray:
        top: np.ndarray = x @ weights[name][0].T + weights[name][1]
        return top

    ip1 = np.maximum(product(data, "ip1"), 0)
    ip2, side = product(ip1, "ip2"), product(ip1, "side")
    exp = np.exp(ip2 + side)
    loss = -np.log((exp / exp.sum(1, keepdims=True))[range(4), LABELS.astype(int)]).mean()
    return {"ip1": ip1, "ip2": ip2, "side": side, "sum": ip2 + side, "loss": loss}


def check(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


class TestNames:
    def test_blobs_and_parameters_stand_in_the_order_of_the_text(self, net: bpt.Net) -> None:
        splits = ["ip1_relu1_0_split_0", "ip1_relu1_0_split_1"]
        assert list(net.blobs) == ["data", "label", "ip1", *splits, "ip2", "side", "sum", "loss"]
        assert [(name, [p.shape for p in params]) for name, params in net.params.items()] == [
            ("ip1", [(5, 3), (5,)]),
            ("ip2", [(2, 5), (2,)]),
            ("side", [(2, 5), (2,)]),
        ]
        assert (net.inputs, net.outputs) == (["data", "label"], ["loss"])
        assert (net.blobs["ip1"].shape, net.blobs["ip1"].count) == ((4, 5), 20)

    @pytest.mark.parametrize(
        ("act", "message"),
        [
            (lambda n: n.forward(dta=0), '"dta" is not an input of the net (data, label)'),
            (lambda n: n.forward(ip1=0), '"ip1" is not an input of the net (data, label)'),
            (lambda n: n.forward(start="ip_1"), 'the net has no layer "ip_1"; did you mean "ip1"?'),
            (lambda n: n.forward(end="los"), 'the net has no layer "los"; did you mean "loss"?'),
            (lambda n: n.forward(["ip3"]), 'the net has no blob "ip3"; did you mean "ip2"?'),
            (lambda n: n.backward("ip3"), 'the net has no blob "ip3"; did you mean "ip2"?'),
            (lambda n: n.backward(lss=1), 'the net has no blob "lss"; did you mean "loss"?'),
            (lambda n: n.blobs["dat"], 'the net has no blob "dat"; did you mean "data"?'),
            (lambda n: n.params["ip_1"], 'the net has no layer with parameters called "ip_1"; did you mean "ip1"?'),
            (
                lambda n: n.params["relu1"],
                'the net has no layer with parameters called "relu1" (it has: ip1, ip2, side)',
            ),
            (lambda n: n.params[0], "the net has no layer with parameters called 0 (it has: ip1, ip2, side)"),
            (
                lambda n: n.forward(data="x"),
                "what is given for blob \"data\" must be an array of numbers: could not convert string to float: 'x'",
            ),
            (
                lambda n: n.forward(data=np.zeros((2, 3))),
                'blob "data" has shape (4, 3), given (2, 3); net.blobs["data"].reshape(2, 3) changes that',
            ),
            (lambda n: n.backward(loss=[1]), 'blob "loss" has shape (), given (1,)'),
            (
                lambda n: n.blobs["ip1"].reshape(2, 5),
                'blob "ip1" is not an input of the net (data, label): its shape follows from them',
            ),
            (lambda n: n.params["ip1"][0].reshape(2, 5), "the shape of a parameter follows from the network's text"),
        ],
    )
    def test_mistakes_are_told(self, net: bpt.Net, act: object, message: str) -> None:
        with pytest.raises(UserError, match=re.escape(message) + "$"):
            act(net)  # type: ignore[operator]

    def test_an_unknown_name_is_a_key_error_as_of_any_dict(self, net: bpt.Net) -> None:
        with pytest.raises(KeyError):
            net.blobs["dat"]
        with pytest.raises(KeyError):
            net.params["dat"]
        assert "dat" not in net.blobs
        assert net.blobs.get("dat") is None


class TestForward:
    def test_it_returns_outputs_and_what_else_is_asked_for(self, net: bpt.Net) -> None:
        expected = by_hand(net, numbers(4, 3))
        out = net.forward(["sum", "ip2"])
        assert list(out) == ["loss", "sum", "ip2"]
        for name, values in out.items():
            check(values, expected[name])
        assert list(net.forward("ip1")) == ["loss", "ip1"]

    def test_inputs_as_arguments(self, net: bpt.Net) -> None:
        x = numbers(4, 3, seed=5)
        expected = by_hand(net, x)
        check(net.forward(data=x.tolist())["loss"], expected["loss"])
        check(net.blobs["data"].data, x)

    def test_arrays_that_were_taken_before_a_pass_show_what_it_left(self, net: bpt.Net) -> None:
        arrays = {name: blob.data for name, blob in net.blobs.items()}
        for seed in (1, 2):
            x = numbers(4, 3, seed=seed)
            arrays["data"][...] = x
            net.forward()
            for name, values in by_hand(net, x).items():
                check(arrays[name], values)
            check(arrays["ip1_relu1_0_split_1"], arrays["ip1"])

    def test_what_is_written_to_parameters_counts(self, net: bpt.Net) -> None:
        weight = net.params["ip2"][0].data
        net.forward()
        weight[...] = numbers(2, 5, seed=7)
        net.params["ip2"][1].data[...] = 3
        expected = by_hand(net, numbers(4, 3))
        check(net.forward()["loss"], expected["loss"])

    def test_a_part_of_the_net(self, net: bpt.Net) -> None:
        expected = by_hand(net, numbers(4, 3))
        out = net.forward(end="ip2")
        assert list(out) == ["ip2"]
        check(out["ip2"], expected["ip2"])
        assert not net.blobs["sum"].data.any()
        check(net.forward(start="side")["loss"], expected["loss"])

    def test_a_pass_may_start_from_zeros(self, net: bpt.Net) -> None:
        assert not net.forward(start="sum", end="sum")["sum"].any()

    @pytest.mark.parametrize("keep", [False, True])
    def test_going_on_from_a_blob_that_was_written_to(self, net: bpt.Net, keep: bool) -> None:
        kept = [blob.data for blob in net.blobs.values()] if keep else []
        net.forward()
        net.blobs["ip2"].data[...] += 1
        net.blobs["side"].data[0, 1] = 8
        expected = net.blobs["ip2"].data + net.blobs["side"].data
        net.forward(start="sum")
        check(net.blobs["sum"].data, expected)
        del kept

    @pytest.mark.parametrize("keep", [False, True])
    def test_readers_of_one_blob_see_what_is_written_to_it(self, net: bpt.Net, keep: bool) -> None:
        """In Caffe the copies that a Split makes are its bottom's memory."""
        kept = [blob.data for blob in net.blobs.values()] if keep else []
        net.forward()
        net.blobs["ip1"].data[...] = numbers(4, 5, seed=3)
        (weight, bias), (other, shift) = ([p.data for p in net.params[name]] for name in ("ip2", "side"))
        net.forward(start="ip2")
        check(net.blobs["ip2"].data, numbers(4, 5, seed=3) @ weight.T + bias)
        check(net.blobs["side"].data, numbers(4, 5, seed=3) @ other.T + shift)
        del kept


class TestBackward:
    def test_it_returns_diffs_of_the_inputs_and_what_else_is_asked_for(self, net: bpt.Net) -> None:
        net.forward()
        assert list(net.backward()) == ["data", "label"]
        assert list(net.backward(["ip2", "sum"])) == ["data", "label", "ip2", "sum"]
        assert list(net.backward(end="side")) == ["ip1_relu1_0_split_1"]

    def test_against_differences(self, net: bpt.Net) -> None:
        x = numbers(4, 3)
        net.forward()
        assert net.blobs["loss"].diff == 1
        diff = net.backward()["data"].copy()
        step = 1e-2
        expected = np.empty_like(x)
        for place in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[place] += sign * step
                ends.append(float(net.forward(data=moved)["loss"]))
            expected[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(diff, expected, atol=2e-4)

    def test_arrays_that_were_taken_before_show_what_it_left(self, net: bpt.Net) -> None:
        arrays = {name: blob.diff for name, blob in net.blobs.items()}
        weight = net.params["ip1"][0].diff
        for times in (1, 2):
            net.forward()
            net.backward()
            check(arrays["ip2"], arrays["sum"])
            check(arrays["data"], arrays["ip1"] @ net.params["ip1"][0].data)  # behind the ReLU: its bottom's diff
            check(weight, times * arrays["ip1"].T @ numbers(4, 3))

    def test_parameters_add_up_until_they_are_cleared(self, net: bpt.Net) -> None:
        net.forward()
        net.backward()
        once = {name: [p.diff.copy() for p in params] for name, params in net.params.items()}
        kept = net.params["ip2"][0].diff
        net.forward()
        net.backward()
        for name, params in net.params.items():
            for param, diff in zip(params, once[name], strict=True):
                check(param.diff, 2 * diff)
        net.clear_param_diffs()
        assert not any(param.diff.any() for params in net.params.values() for param in params)
        assert not kept.any()
        net.backward()
        check(net.params["ip2"][0].diff, once["ip2"][0])
        check(kept, once["ip2"][0])

    def test_it_may_be_repeated_with_another_diff_each_time(self, net: bpt.Net) -> None:
        """One forward pass, then the diff of the input for each class: how saliency maps are made."""
        net.forward()
        slopes = []
        for number in range(2):
            one = np.zeros((4, 2), np.float32)
            one[:, number] = 1
            slopes.append(net.backward(start="sum", sum=one)["data"].copy())
        both = net.backward(start="sum", sum=np.ones((4, 2)))["data"]
        check(both, slopes[0] + slopes[1])
        active = net.blobs["ip1"].data > 0
        for number, slope in enumerate(slopes):
            weight = net.params["ip2"][0].data[number] + net.params["side"][0].data[number]
            check(slope, (active * weight) @ net.params["ip1"][0].data)

    def test_a_part_of_the_net(self, net: bpt.Net) -> None:
        net.forward()
        net.backward()
        whole = {name: blob.diff.copy() for name, blob in net.blobs.items()}
        net.backward(end="sum")
        net.blobs["ip2"].diff[...] *= 2
        net.blobs["side"].diff[...] *= 2
        net.backward(start="side")
        for name in ("data", "ip1", "ip2", "side"):
            check(net.blobs[name].diff, 2 * whole[name])
        check(net.blobs["sum"].diff, whole["sum"])

    def test_the_losses_diff_may_be_set(self, net: bpt.Net) -> None:
        net.forward()
        diff = net.backward()["data"].copy()
        check(net.backward(loss=-3)["data"], -3 * diff)
        check(net.backward()["data"], -3 * diff)  # it stays, as Caffe's does

    def test_looking_changes_nothing(self, net: bpt.Net, tmp_path: Path) -> None:
        other = bpt.Net(write(tmp_path, TEXT), bpt.TRAIN)
        other.forward(data=numbers(4, 3), label=LABELS)
        other.backward()
        for _ in range(2):
            for blob in (*net.blobs.values(), *(p for params in net.params.values() for p in params)):
                str(blob.data), str(blob.diff)
            net.forward()
        net.backward()
        for name, blob in net.blobs.items():
            np.testing.assert_array_equal(blob.diff, other.blobs[name].diff, err_msg=name)
        for name, params in net.params.items():
            for param, same in zip(params, other.params[name], strict=True):
                np.testing.assert_array_equal(param.diff, same.diff, err_msg=name)

    def test_a_loss_that_hands_on_its_data_starts_with_its_weight_once(self, tmp_path: Path) -> None:
        text = inputs(x=(2, 2), y=(2,)) + inner_product("x", "ip", 2) + layer("SoftmaxWithLoss", "ip y", "loss")
        text += layer("Silence", "loss", name="hush")
        net = bpt.Net(write(tmp_path, text), bpt.TRAIN)
        net.forward(x=numbers(2, 2))
        net.backward()
        expected = net.params["ip"][0].diff.copy()
        net.clear_param_diffs()
        str(net.blobs["loss"].diff)
        net.backward()
        check(net.params["ip"][0].diff, expected)
        assert expected.any()
