"""Which layers of a file of weights go into a net, and what is said of those that do not fit."""

from __future__ import annotations

import logging
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.train.state import load_weights, save_weights
from tests.support.small_states import NET, net_of, values, write_other_files
from tests.support.training import SNAPSHOTS

REMEDY = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(net: Net, path: str) -> str:
    before = values(net)
    with pytest.raises(FileError) as caught:
        load_weights(net, path)
    assert values(net) == before
    return str(caught.value)


def write(*layers: pb.LayerParameter) -> str:
    Path("w.caffemodel").write_bytes(pb.NetParameter(name="w", layer=layers).SerializeToString())
    return "w.caffemodel"


@pytest.mark.parametrize("path", ["w.caffemodel", "w.caffemodel.h5"])
def test_layers_of_other_names(path: str, caplog: pytest.LogCaptureFixture) -> None:
    source = net_of(NET.replace("ip1", "other"))
    save_weights(source, path)
    net = net_of(seed=1)
    before = values(net)
    with caplog.at_level(logging.INFO, "bpt"):
        load_weights(net, path)
    assert sorted(caplog.messages) == [
        "Ignoring source layer other",
        f"Layer ip1 is not in {path}; it keeps its parameters",
    ]
    assert values(net) == before | {key: value for key, value in values(source).items() if key.startswith("b/ip2")}


def test_nothing_in_common_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    save_weights(net_of(NET.replace("ip", "fc")), "w.caffemodel")
    with caplog.at_level(logging.WARNING, "bpt"):
        load_weights(net_of(), "w.caffemodel")
    assert caplog.messages == ["w.caffemodel: no layer with weights has the name of one in the net; nothing was loaded"]


@pytest.mark.parametrize("path", ["w.caffemodel", "w.caffemodel.h5"])
def test_mismatches(path: str) -> None:
    save_weights(net_of(NET.replace("num_output: 2", "num_output: 7")), path)
    assert refusal(net_of(), path) == (
        f"{path}: Cannot copy param 0 weights from layer 'b/ip2'; shape mismatch.  Source param shape is 7 4 (28); "
        f"target param shape is 2 4 (8). {REMEDY}"
    )
    save_weights(net_of(NET.replace("num_output: 2", "num_output: 2 bias_term: false")), path)
    assert refusal(net_of(), path) == (
        f"{path}: Incompatible number of blobs for layer 'b/ip2': 1 in the file, 2 in the net. {REMEDY}"
    )
    assert refusal(net_of(NET.replace("num_output: 4", "num_output: 4 bias_term: false")), path) == (
        f"{path}: Incompatible number of blobs for layer 'ip1': 2 in the file, 1 in the net. {REMEDY}"
    )


@pytest.mark.parametrize("name", ["v1_weights", "v1_weights.upgraded"])
def test_weights_in_the_old_format_of_caffe(name: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = SNAPSHOTS / "upgrade"
    path = str(folder / f"{name}.caffemodel")
    net = net_of((folder / "v1_weights_net.prototxt").read_text())
    with caplog.at_level(logging.INFO, "bpt"):
        load_weights(net, path)
    notice = f"{path}: weights in Caffe's old format V1LayerParameter, which is read as today's"
    assert (notice in caplog.messages) == (name == "v1_weights")
    expected = np.load(folder / "v1_weights_expected.npz")
    x = torch.from_numpy(expected["data"])
    for node in net.graph.nodes[1:]:
        x = net.layer(node)(x)
    np.testing.assert_allclose(x.detach().numpy(), expected["prob"], rtol=1e-5, atol=1e-7)
    loaded = {f"{layer}_{blob}": value.detach().numpy() for (layer, blob), value in net.values_by_name().items()}
    assert set(loaded) == {"conv1_0", "conv1_1", "ip1_0", "ip1_1"}
    for key, array in loaded.items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


def test_weights_in_the_oldest_format() -> None:
    message = pb.NetParameter()
    inner = message.layers.add().layer
    inner.name = "ip1"
    inner.blobs.add(num=1, channels=1, height=4, width=3, data=range(12))
    inner.blobs.add(num=1, channels=1, height=1, width=4, data=[1, 2, 3, 4])
    Path("w.caffemodel").write_bytes(message.SerializeToString())
    net = net_of()
    load_weights(net, "w.caffemodel")
    assert values(net)["ip1/0"] == list(range(12))
    assert values(net)["ip1/1"] == [1, 2, 3, 4]


def test_old_layers_along_with_new_ones() -> None:
    message = pb.NetParameter()
    message.layers.add(name="ip1")
    message.layer.add(name="ip1")
    Path("w.caffemodel").write_bytes(message.SerializeToString())
    words = 'w.caffemodel: has layers in an old format along with new ones ("layers" and "layer")'
    assert refusal(net_of(), "w.caffemodel") == words


def test_four_axes_only_count_as_old_if_they_are_written_so() -> None:
    layer = pb.LayerParameter(name="ip1")
    layer.blobs.add(data=range(12)).shape.dim.extend([1, 1, 4, 3])
    layer.blobs.add(data=range(4)).shape.dim.append(4)
    assert refusal(net_of(), write(layer)) == (
        "w.caffemodel: Cannot copy param 0 weights from layer 'ip1'; shape mismatch.  Source param shape is 1 1 4 3 "
        f"(12); target param shape is 4 3 (12). {REMEDY}"
    )
    del layer.blobs[0].shape.dim[:]
    layer.blobs[0].num, layer.blobs[0].channels, layer.blobs[0].height, layer.blobs[0].width = 4, 3, 1, 1
    assert "Source param shape is 4 3 1 1 (12); target" in refusal(net_of(), write(layer))


def test_double_precision() -> None:
    layer = pb.LayerParameter(name="ip1")
    layer.blobs.add(double_data=[0.1] * 12).shape.dim.extend([4, 3])
    layer.blobs.add(double_data=[1.0] * 4).shape.dim.append(4)
    net = net_of()
    load_weights(net, write(layer))
    assert values(net)["ip1/0"] == [float(np.float32(0.1))] * 12


def test_missing_numbers() -> None:
    layer = pb.LayerParameter(name="ip1")
    layer.blobs.add(data=range(11)).shape.dim.extend([4, 3])
    layer.blobs.add(data=range(4)).shape.dim.append(4)
    assert refusal(net_of(), write(layer)) == (
        'w.caffemodel: layer "ip1": a blob of shape 4 x 3 needs 12 values, but has 11'
    )


SHARED = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "one" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" } } }
layer { name: "two" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" }
  inner_product_param { num_output: 3 bias_filler { type: "gaussian" } } }
"""


@pytest.mark.parametrize("path", ["w.caffemodel", "w.caffemodel.h5"])
def test_shared_parameters(path: str) -> None:
    source = net_of(SHARED)
    save_weights(source, path, [torch.full((3, 3), 0.5), None, None])
    if path.endswith(".h5"):
        # As Caffe: data with the owner only, diffs with everyone.
        with h5py.File(path) as file:
            assert (list(file["data/one"]), list(file["data/two"])) == (["0", "1"], ["1"])
            assert np.array_equal(file["diff/two/0"][()], np.full((3, 3), 0.5, np.float32))
            assert np.array_equal(file["diff/two/1"][()], np.zeros(3, np.float32))
    else:
        two = pb.NetParameter.FromString(Path(path).read_bytes()).layer[2]
        assert list(two.blobs[0].diff) == [0.5] * 9
        assert list(two.blobs[0].data) == values(source)["one/0"]
    net = net_of(SHARED, seed=1)
    load_weights(net, path)
    assert values(net) == values(source)


def test_splits_and_losses_are_written_as_caffe_builds_them() -> None:
    net = net_of(
        """
        layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 3 }
          include { phase: TRAIN } }
        layer { name: "l1" type: "EuclideanLoss" bottom: "a" bottom: "y" loss_weight: 0.5 }
        layer { name: "l2" type: "EuclideanLoss" bottom: "a" bottom: "y" top: "l2" }
        """
    )
    save_weights(net, "w.caffemodel")
    written = pb.NetParameter.FromString(Path("w.caffemodel").read_bytes())
    assert [(layer.name, layer.type, list(layer.bottom), list(layer.top)) for layer in written.layer] == [
        ("in", "Input", [], ["x", "y"]),
        ("y_in_1_split", "Split", ["y"], ["y_in_1_split_0", "y_in_1_split_1"]),
        ("ip", "InnerProduct", ["x"], ["a"]),
        ("a_ip_0_split", "Split", ["a"], ["a_ip_0_split_0", "a_ip_0_split_1"]),
        ("l1", "EuclideanLoss", ["a_ip_0_split_0", "y_in_1_split_0"], []),
        ("l2", "EuclideanLoss", ["a_ip_0_split_1", "y_in_1_split_1"], ["l2"]),
    ]
    assert [list(layer.loss_weight) for layer in written.layer] == [[], [], [], [], [0.5], [1]]
    assert all(layer.phase == pb.TRAIN and layer.HasField("phase") for layer in written.layer)


def test_other_kinds_of_files() -> None:
    write_other_files()
    Path("empty").touch()
    net = net_of()
    for name, words in {
        "snap_iter_3.solverstate": "is a solver state, not weights; these are in the .caffemodel file of the same",
        "snap_iter_3.solverstate.h5": "is a solver state, not weights; these are in the .caffemodel.h5 file of the",
        "net.prototxt": "is a text file (prototxt), not a binary file of weights",
        "mean.binaryproto": "is a binary blob, such as a mean image (binaryproto), not a binary file of weights",
        "data.h5": "is an HDF5 file, but no file of weights: it has no group /data",
        "empty": "is empty",
        "gone": "no such file",
        ".": "is a folder, not a file",
    }.items():
        assert refusal(net, name).startswith(f"{name}: {words}")


def test_hdf5_that_is_no_weights_inside() -> None:
    with h5py.File("w.h5", "w") as file:
        file["data/ip1/0"] = np.array([[b"x"] * 3] * 4)
        file["data/ip1/1"] = np.zeros(4)
    assert refusal(net_of(), "w.h5").startswith("w.h5: is an HDF5 file, but damaged or not written by Caffe or bpt: ")
