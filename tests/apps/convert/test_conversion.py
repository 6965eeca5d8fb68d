"""bpt convert: every way from one format to another, and what was written is what was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from bpt.apps.convert.conversion import convert
from bpt.apps.convert.image_mean import compute_image_mean
from bpt.base.errors import FileError, UsageError
from bpt.cli.main import main
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.config.proto.dialect_reading import Dialect
from bpt.data.transform import read_mean, write_mean
from bpt.train.state.preprocessing import beside, read_preprocessing, write_preprocessing
from tests.support.lmdbs import write_images
from tests.support.paths import GOLDEN

VALUES = {"conv": [np.linspace(-2, 2, 24).reshape(2, 3, 2, 2), [0.1, -0.1]], "group/fc": [np.eye(3, 2), [1, 2, 3]]}
NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 dim: 2 dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 2 kernel_size: 2 } }
layer { name: "group/fc" type: "InnerProduct" bottom: "c" top: "f" inner_product_param { num_output: 3 } }
"""
FORMATS = ["caffemodel", "h5", "safetensors"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, **changes: list[Any]) -> str:
    net = pb.NetParameter(name="net")
    for name, blobs in (VALUES | changes).items():
        kind = "Convolution" if name == "conv" else "InnerProduct"
        net.layer.add(name=name, type=kind, blobs=[array_to_blob(blob) for blob in blobs])
    path.write_bytes(net.SerializeToString())
    return str(path)


def need(*endings: str) -> None:
    for ending in endings:
        if ending == "safetensors":
            pytest.importorskip("safetensors")


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_there_and_back(first: str, second: str, tmp_path: Path) -> None:
    need(first, second)
    source = write(tmp_path / "source.caffemodel")
    one, two, last = (str(tmp_path / name) for name in (f"1.{first}", f"2.{second}", "3.caffemodel"))
    for start, end in ((source, one), (one, two), (two, last)):
        (line,) = convert(start, end)
        assert line == f"{end}: 2 layers with 4 blobs, 35 numbers; read back: all equal"
    net = pb.NetParameter.FromString(Path(last).read_bytes())
    read = {layer.name: [blob_to_array(blob) for blob in layer.blobs] for layer in net.layer}
    assert read.keys() == VALUES.keys()  # safetensors has an order of its own
    for name, blobs in VALUES.items():
        for values, back in zip(blobs, read[name], strict=True):
            assert np.array_equal(np.asarray(values, np.float32), back)


@pytest.mark.parametrize("ending", ["caffemodel", "safetensors"])
def test_half_precision(ending: str, tmp_path: Path) -> None:
    need(ending)
    source, target = write(tmp_path / "source.caffemodel"), str(tmp_path / f"half.{ending}")
    (line,) = convert(source, target, "FLOAT16")
    assert line.endswith(
        "read back: equal except for rounding to FLOAT16, by at most 0.00024 of a blob's largest number"
    )
    convert(target, str(tmp_path / "plain.caffemodel"))
    net = pb.NetParameter.FromString((tmp_path / "plain.caffemodel").read_bytes())
    bias = next(layer.blobs[1] for layer in net.layer if layer.name == "conv")
    assert list(bias.data) == [float(np.float16(0.1)), float(np.float16(-0.1))]
    # Numbers that half precision has not, such as the sums of a BatchNorm, keep their blob in single precision.
    note, _ = convert(write(tmp_path / "large.caffemodel", conv=[[[1e5, 0.1]], [0.1]]), target, "FLOAT16")
    assert '"conv"' in note
    convert(target, str(tmp_path / "plain.caffemodel"))
    net = pb.NetParameter.FromString((tmp_path / "plain.caffemodel").read_bytes())
    large, small = next(layer.blobs for layer in net.layer if layer.name == "conv")
    assert list(large.data) == [1e5, float(np.float32(0.1))]
    assert list(small.data) == [float(np.float16(0.1))]


@pytest.mark.parametrize(
    ("kind", "blobs", "half"),
    [
        ("Scale", [[1e-8, 2e-8], [0.0, 1.0]], [False, True]),
        ("Scale", [[1.0, 1e-6], [1.0, 1e-4]], [False, True]),  # of a vector each number counts
        ("BatchNorm", [[0.0, 0.0], [1e-7, 3e-8], [1.0]], [False] * 3),
        ("BatchNorm", [[1.0, 2.0], [1e5, 1.0], [999.98]], [False] * 3),
        ("BatchNorm", [[1.0, 2.0], [3.0, 1.0], [999.98]], [True] * 3),
        ("InnerProduct", [[[1.0, 2.0], [1e-7, -1e-8]]], [False]),  # an output of nothing else
        ("InnerProduct", [[[1.0, 1e-8, 1e-8]]], [False]),
        ("InnerProduct", [np.concatenate([np.ones((2, 400)), np.full((2, 1), 1e-8)], 1)], [True]),  # few beside others
        ("InnerProduct", [np.zeros((0, 3)), [1.0]], [True, True]),
    ],
)
def test_blobs_that_half_precision_does_not_hold(kind: str, blobs: list[Any], half: list[bool], tmp_path: Path) -> None:
    net = pb.NetParameter()
    net.layer.add(name="a", type=kind, blobs=[array_to_blob(blob) for blob in blobs])
    (tmp_path / "net.caffemodel").write_bytes(net.SerializeToString())
    convert(str(tmp_path / "net.caffemodel"), str(tmp_path / "half.caffemodel"), "FLOAT16")
    stored = pb.NetParameter.FromString((tmp_path / "half.caffemodel").read_bytes()).layer[0].blobs
    assert [blob.raw_data_type == pb.FLOAT16 for blob in stored] == half
    for blob, values, is_half in zip(stored, blobs, half, strict=True):
        assert is_half or np.array_equal(blob_to_array(blob), np.asarray(values, np.float32))


def test_layers_of_one_name_are_both_kept_or_refused(tmp_path: Path) -> None:
    net = pb.NetParameter(name="net", force_backward=True)
    for value in (1, 2):
        net.layer.add(name="twice", type="Scale", blobs=[array_to_blob([value])])
    (tmp_path / "net.caffemodel").write_bytes(net.SerializeToString())
    convert(str(tmp_path / "net.caffemodel"), str(tmp_path / "new.caffemodel"))
    new = pb.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    assert [list(layer.blobs[0].data) for layer in new.layer] == [[1], [2]] and new.force_backward
    with pytest.raises(UsageError, match='"twice"'):
        convert(str(tmp_path / "net.caffemodel"), str(tmp_path / "new.h5"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.caffemodel", "new.caffemodel"]
    convert(str(tmp_path / "new.caffemodel"), str(tmp_path / "new.caffemodel"))  # in place


def test_a_net_reads_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    source = write(tmp_path / "source.caffemodel")
    outputs = []
    for target, raw in (("raw.caffemodel", "FLOAT"), ("plain.h5", "")):
        convert(source, str(tmp_path / target), raw)
        net = bpt.Net(tmp_path / "net.prototxt", bpt.TEST, weights=tmp_path / target)
        outputs.append(net.forward(x=np.ones((1, 3, 2, 2)))["f"].tolist())
    assert outputs[0] == outputs[1]
    message = pb.NetParameter.FromString((tmp_path / "raw.caffemodel").read_bytes())
    assert message.layer[0].blobs[0].raw_data_type == pb.FLOAT and not message.layer[0].blobs[0].data


def test_old_layers_and_old_shapes_become_todays(tmp_path: Path) -> None:
    old = pb.NetParameter()
    legacy: dict[str, Any] = {"num": 1, "channels": 1}
    old.layers.add(name="ip", type=pb.V1LayerParameter.INNER_PRODUCT, blobs=[
        pb.BlobProto(**legacy, height=1, width=2, data=[1, 2]), pb.BlobProto(**legacy, height=1, width=1, data=[3]),
    ])  # fmt: skip
    (tmp_path / "old.caffemodel").write_bytes(old.SerializeToString())
    notes = convert(str(tmp_path / "old.caffemodel"), str(tmp_path / "new.caffemodel"))
    assert "deprecated V1LayerParameter" in notes[0]
    (layer,) = pb.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes()).layer
    assert layer.type == "InnerProduct"
    assert [list(blob.shape.dim) for blob in layer.blobs] == [[1, 2], [1]]


def test_a_snapshot_of_caffe(tmp_path: Path) -> None:
    source = GOLDEN / "snapshots" / "SGD_bn_diff" / "snap_iter_10.caffemodel"
    lines = convert(str(source), str(tmp_path / "out.h5"))
    assert lines[-1].endswith("read back: all equal")


@pytest.mark.parametrize(
    ("source", "target", "raw", "error", "words"),
    [
        ("source.caffemodel", "a.npz", "", UsageError, "a.npz: weights are written to files that end in .caffemodel"),
        (
            "source.caffemodel",
            "a.h5",
            "FLOAT16",
            UsageError,
            "--raw FLOAT16: Caffe's HDF5 files cannot store numbers in this way",
        ),
        ("source.caffemodel", "a.safetensors", "FLOAT", UsageError, "--raw FLOAT is for caffemodels"),
        ("source.caffemodel", ".h5", "", UsageError, ".h5: needs a name before its ending"),
        ("text.caffemodel", "a.h5", "", FileError, "text.caffemodel: is a text file"),
        ("missing.caffemodel", "a.h5", "", FileError, "missing.caffemodel: no such file"),
    ],
)
def test_refusals(source: str, target: str, raw: str, error: type[Exception], words: str, folder: Path) -> None:
    write(folder / "source.caffemodel")
    (folder / "text.caffemodel").write_text('layer { name: "a" }')
    with pytest.raises(error) as caught:
        convert(source, target, raw)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("source", ["a.h5", "a.safetensors", "safetensors.h5"])
def test_only_a_caffemodel_has_a_dialect(source: str, folder: Path) -> None:
    need(source.split(".", maxsplit=1)[0], source.split(".")[1])
    ending = "safetensors" if "safetensors" in source else "h5"
    convert(write(folder / "source.caffemodel"), f"b.{ending}")
    Path(f"b.{ending}").rename(source)
    with pytest.raises(UsageError) as caught:
        convert(source, "c.caffemodel", dialect=Dialect.INTEL)
    assert str(caught.value).startswith(f"--dialect INTEL: {source} is no caffemodel")
    assert not Path("c.caffemodel").exists()
    assert len(convert(source, "c.caffemodel")) == 1


def test_a_dialect_in_any_case_and_what_it_rewrites(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = pb.NetParameter(name="net")
    net.layer.add(name="pool", type="Pooling").pooling_param.MergeFrom(pb.PoolingParameter(kernel_size=3, stride=2))
    (folder / "bvlc.caffemodel").write_bytes(net.SerializeToString())
    words = ["convert", "--weights", "bvlc.caffemodel", "--output", "a.caffemodel", "--dialect"]
    assert main([*words, "bvlc"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main([*words, "Intel_1_0_5"]) == 0
    note, _ = capsys.readouterr().out.splitlines()
    assert 'layer "pool"' in note
    assert note.endswith("as --dialect INTEL_1_0_5 says: kernel 2 pad 3 (by BVLC's numbers kernel 3 stride 2)")


@pytest.mark.parametrize("name", ["snap_iter_5.caffemodel", "snap_best.caffemodel", "snap_iter_5.caffemodel.h5"])
def test_the_record_of_the_preprocessing_comes_along(name: str, folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "new").mkdir()
    convert(write(folder / "source.caffemodel"), f"old/{name}")
    write_mean("mean.binaryproto", np.ones((3, 2, 2), np.float32))
    record = pb.ImagePreprocessing(height=2, width=2, transform_param={"mean_file": "mean.binaryproto", "scale": 0.5})
    write_preprocessing("old/snap", record)
    _, told = convert(f"old/{name}", "new/other.h5")
    assert told == "new/other_preprocessing.prototxt: how inputs are prepared, as old/snap_preprocessing.prototxt says"
    found = read_preprocessing(beside("new/other.h5"))
    assert (found.height, found.transform_param.scale) == (2, 0.5)
    np.testing.assert_array_equal(read_mean(found.transform_param.mean_file), np.ones((3, 2, 2)))
    assert len(convert(f"old/{name}", "new/other.caffemodel")) == 1  # it is there already, and says the same
    assert len(convert(f"old/{name}", "old/snap.h5")) == 1  # it is the same file
    record.height = record.width = 4
    write_preprocessing("new/other", record)
    told = convert(f"old/{name}", "new/other.h5")[-1]
    assert told.startswith("new/other_preprocessing.prototxt: stays as it is, though old/snap_preprocessing.prototxt")
    assert read_preprocessing(beside("new/other.h5")).height == 4


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (
            {"conv": np.zeros(1, np.float32)},
            'has "conv", float32; a tensor must be called <layer>/<number of the blob>',
        ),
        ({"conv/1": np.zeros(1, np.float32)}, 'layer "conv" has blobs [1]; they must be numbered from 0'),
        (None, "is not safetensors that can be read: "),
    ],
)
def test_other_safetensors(tensors: dict[str, np.ndarray] | None, words: str, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    (tmp_path / "a.safetensors").write_bytes(b"no" * 9 if tensors is None else library.save(tensors))
    with pytest.raises(FileError) as caught:
        convert(str(tmp_path / "a.safetensors"), str(tmp_path / "b.h5"))
    assert str(caught.value).startswith(f"{tmp_path / 'a.safetensors'}: {words}")


def test_floats(tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(7, 2, 3, 4)).astype(np.float32)
    told: list[str] = []
    path = write_images(tmp_path / "lmdb", list(images))
    mean = compute_image_mean(path, str(tmp_path / "mean"), told.append)
    np.testing.assert_allclose(mean, images.mean(axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(read_mean(str(tmp_path / "mean")), mean)
    assert told[:3] == ["Processed 7 files.", f"Write to {tmp_path}/mean", "Number of channels: 2"]
    shown = [float(line.rpartition(":")[2]) for line in told[3:]]
    np.testing.assert_allclose(shown, images.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-6)


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        compute_image_mean(str(tmp_path / "none"))
