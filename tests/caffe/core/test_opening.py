"""Making, loading, saving and closing a bpt.Net."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import bpt
from bpt.apps.arguments import checked_count, checked_device
from bpt.base.errors import FileError, UserError
from tests.support.lmdbs import write_images
from tests.support.open_files import open_files, prefetchers
from tests.support.paths import GOLDEN
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write
from tests.support.recorded_states import caffe_class

TEXT = inputs(x=(2, 3)) + inner_product("x", "ip", 4)


class TestArguments:
    def test_both_orders(self, tmp_path: Path) -> None:
        path = write(tmp_path, TEXT)
        weights = tmp_path / "w.caffemodel"
        net = bpt.Net(path, bpt.TEST)
        net.params["ip"][0].data[...] = 5
        net.save(weights)
        for again in (
            bpt.Net(path, bpt.TEST, weights),
            bpt.Net(path, bpt.TEST, weights=str(weights)),
            bpt.Net(path, weights, bpt.TEST),
            bpt.Net(Path(path), str(weights), bpt.TEST),
        ):
            assert (again.params["ip"][0].data == 5).all()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("w.caffemodel",), "phase must be bpt.TRAIN or bpt.TEST, not 'w.caffemodel'"),
            (("TEST", "w.caffemodel"), "phase must be bpt.TRAIN or bpt.TEST, not 'TEST'"),
            ((1.0,), "phase must be bpt.TRAIN or bpt.TEST, not 1.0"),
            ((), "a Net needs its phase: bpt.Net(path, bpt.TRAIN) or bpt.Net(path, bpt.TEST)"),
            ((7,), "phase must be bpt.TRAIN or bpt.TEST, not 7"),
            ((bpt.TEST, bpt.TEST), "weights must be the path of a file, not 1"),
        ],
    )
    def test_neither_order(self, arguments: tuple[Any, ...], message: str, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            bpt.Net(write(tmp_path, TEXT), *arguments)

    def test_phase_level_and_stages(self, tmp_path: Path) -> None:
        def when(rule: str, name: str) -> str:
            return layer("ReLU", "x", name, f"include {{ {rule} }}")

        text = inputs(x=(1,)) + when("phase: TRAIN", "train") + when("phase: TEST", "test")
        path = write(tmp_path, text + when("min_level: 2", "high") + when('stage: "deploy"', "deploy"))
        assert bpt.Net(path, bpt.TRAIN).outputs == ["train"]
        assert bpt.Net(path, bpt.TEST, level=2).outputs == ["high", "test"]
        assert bpt.Net(path, bpt.TEST, stages=["deploy", "other"]).outputs == ["deploy", "test"]
        assert bpt.Net(path, bpt.TEST, stages="deploy").outputs == ["deploy", "test"]

    def test_fillers_draw_the_same_numbers_every_time(self, tmp_path: Path) -> None:
        path = write(tmp_path, TEXT)
        first, second = (bpt.Net(path, bpt.TEST).params["ip"][0].data for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert first.any()


class TestWeights:
    def test_what_is_saved_is_caffes_file(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, TEXT), bpt.TEST)
        net.params["ip"][0].data[...] = numbers(4, 3)
        net.save(tmp_path / "w.caffemodel")
        read: Any = caffe_class("NetParameter")()
        read.ParseFromString((tmp_path / "w.caffemodel").read_bytes())
        (saved,) = (layer for layer in read.layer if layer.name == "ip")
        assert [list(blob.shape.dim) for blob in saved.blobs] == [[4, 3], [4]]
        np.testing.assert_array_equal(np.array(saved.blobs[0].data, np.float32).reshape(4, 3), numbers(4, 3))
        net.save(str(tmp_path / "w.caffemodel.h5"))
        with h5py.File(tmp_path / "w.caffemodel.h5") as file:
            np.testing.assert_array_equal(file["data/ip/0"], numbers(4, 3))

    def test_copy_from(self, tmp_path: Path) -> None:
        path = write(tmp_path, TEXT)
        source, target = bpt.Net(path, bpt.TEST), bpt.Net(path, bpt.TEST)
        source.params["ip"][0].data[...] = numbers(4, 3)
        kept = target.params["ip"][0].data
        for file in (tmp_path / "w.caffemodel", tmp_path / "w.h5"):
            source.save(file)
            kept[...] = 0
            target.copy_from(file)
            np.testing.assert_array_equal(kept, numbers(4, 3))
            x = numbers(2, 3, seed=2)
            np.testing.assert_array_equal(target.forward(x=x)["ip"], source.forward(x=x)["ip"])

    def test_backward_takes_the_new_weights(self, tmp_path: Path) -> None:
        net = bpt.Net(write(tmp_path, "force_backward: true " + TEXT), bpt.TRAIN)
        net.params["ip"][0].data[...] = numbers(4, 3)
        net.save(tmp_path / "w.caffemodel")
        net.params["ip"][0].data[...] = 0
        top = net.forward()["ip"].copy()
        net.copy_from(tmp_path / "w.caffemodel")
        diff = numbers(*top.shape, seed=1)
        np.testing.assert_allclose(net.backward(ip=diff)["x"], diff @ numbers(4, 3), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(net.blobs["ip"].data, top)  # stays what the last pass has left

    def test_backward_over_what_was_overwritten_wants_a_forward_pass(self, tmp_path: Path) -> None:
        text = TEXT + layer("Scale", "ip", "ip", name="scale")
        net = bpt.Net(write(tmp_path, "force_backward: true " + text), bpt.TRAIN)
        with pytest.raises(UserError, match='layer "scale": backward needs a forward pass before it'):
            net.backward()

    def test_weights_that_do_not_fit_change_nothing(self, tmp_path: Path) -> None:
        bpt.Net(write(tmp_path, TEXT), bpt.TEST).save(tmp_path / "w.caffemodel")
        path = write(tmp_path, TEXT.replace("dim: 3", "dim: 5"))
        with pytest.raises(FileError, match="Source param shape is 4 3"):
            bpt.Net(path, bpt.TEST, tmp_path / "w.caffemodel")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at open files as Linux shows them")
class TestData:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        """A net whose data come from an LMDB of 28x28 images, five a batch."""
        shutil.copytree(GOLDEN / "lmdb" / "digits_test_lmdb", tmp_path / "lmdb")
        source = f'data_param {{ source: "{tmp_path}/lmdb" backend: LMDB batch_size: 5 }}'
        text = f'layer {{ name: "data" type: "Data" top: "data" top: "label" {source} }}'
        return write(tmp_path, text + inner_product("data", "ip", 2))

    def test_every_pass_takes_the_next_batch(self, path: str) -> None:
        theirs = np.load(GOLDEN / "lmdb" / "lmdb_contents.npz")
        with bpt.Net(path, bpt.TEST) as net:
            assert net.inputs == []
            data, label = net.blobs["data"].data, net.blobs["label"].data
            for batch in range(2):
                net.forward()
                rows = slice(5 * batch, 5 * batch + 5)
                np.testing.assert_array_equal(data, theirs["digits_test_lmdb/data"][rows])
                np.testing.assert_array_equal(label, theirs["digits_test_lmdb/label"][rows])
                net.forward(start="ip")

    def test_batches_of_other_shapes(self, tmp_path: Path) -> None:
        """Images of another size make a batch of that size; what is there of the last one fits no more."""
        images = [np.full((1, size, size), size, np.uint8) for size in (3, 5)]
        source = write_images(tmp_path / "images", images)
        data = layer("Data", "", "d", f'data_param {{ source: "{source}" backend: LMDB batch_size: 1 }}')
        text = "force_backward: true " + data + layer("Power", "d", "p", "power_param { scale: 2 }")
        with bpt.Net(write(tmp_path, text), bpt.TEST) as net:
            for size in (3, 5, 3):
                assert (net.forward()["p"] == 2 * size).all()
                assert net.blobs["p"].shape == net.blobs["p"].data.shape == (1, 1, size, size)
                assert not net.blobs["p"].diff.any()
                net.blobs["p"].diff[...] = size
                net.backward()
                assert (net.blobs["d"].diff == 2 * size).all()
                assert net.blobs["d"].diff.shape == (1, 1, size, size)

    def test_closing_ends_threads_and_closes_files(self, path: str, tmp_path: Path) -> None:
        before = prefetchers()
        with bpt.Net(path, bpt.TEST) as net:
            net.forward()
            assert prefetchers() == before + 1
            assert open_files(tmp_path)
        assert prefetchers() == before
        assert not open_files(tmp_path)
        net.close()

    def test_so_does_forgetting_the_net(self, path: str, tmp_path: Path) -> None:
        before = prefetchers()
        net = bpt.Net(path, bpt.TEST)
        net.forward()
        net.blobs["ip"].data.sum()
        del net  # without the garbage collector's help: there are no cycles
        assert prefetchers() == before
        assert not open_files(tmp_path)

    def test_so_does_an_error_while_opening(self, path: str, tmp_path: Path) -> None:
        with pytest.raises(FileError) as caught:  # which keeps the frames, and so the net
            bpt.Net(path, bpt.TEST, tmp_path / "nope.caffemodel")
        assert not open_files(tmp_path)
        assert "nope.caffemodel" in str(caught.value)

    def test_a_closed_net_cannot_run(self, path: str) -> None:
        net = bpt.Net(path, bpt.TEST)
        net.close()
        with pytest.raises(UserError, match='layer "data" cannot read data: the net is closed'):
            net.forward()


@pytest.mark.parametrize("device", ["gpux", "cuda:77", "meta"])
def test_a_device_that_is_not_there_is_refused_in_words(device: str) -> None:
    with pytest.raises(UserError, match=device):
        checked_device(device)
    assert checked_device("cpu") == checked_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("count", [1.5, -4, "a", None])
def test_iterations_are_whole_numbers(count: object) -> None:
    """``step(1.5)`` trained 2 iterations, and ``step(-4)`` none, without a word."""
    with pytest.raises(UserError, match="step: iterations must be a whole number from 0 on"):
        checked_count(count, "step: iterations")  # type: ignore[arg-type]
    assert checked_count(np.int64(3), "") == 3
