"""Which layers of a net are in no file of weights, what is said that the files have instead, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.train.state import MissingWeights, WeightCoverage, load_to_run, save_weights
from tests.support.small_states import NET, net_of

SHARING = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "one" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "%s" }
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" } } }
layer { name: "two" type: "InnerProduct" bottom: "x" top: "b" param { name: "w" } param { name: "%s" }
  inner_product_param { num_output: 4 } }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def covered(net: Net, *paths: str) -> WeightCoverage:
    coverage = WeightCoverage(net.graph)
    for path in paths:
        coverage = load_to_run(net, path, coverage)
    return coverage


def names(coverage: WeightCoverage) -> list[str]:
    return [node.name for node in coverage.missing()]


def warnings_of(coverage: WeightCoverage, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "bpt"):
        coverage.check()
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("path", ["w.caffemodel", "w.caffemodel.h5"])
def test_a_renamed_layer(path: str, caplog: pytest.LogCaptureFixture) -> None:
    save_weights(net_of(NET.replace("ip1", "fc1")), path)
    coverage = covered(net_of(), path)
    assert names(coverage) == ["ip1"]
    (told,) = warnings_of(coverage, caplog)
    assert told.startswith("Layer ip1 is in none of the weights; ")
    assert f"fc1 ({path}), of the same shapes" in told


def test_what_the_files_have_instead(caplog: pytest.LogCaptureFixture) -> None:
    """Those of the same shapes come first, then the nearest names; if the net has all layers, that is said."""
    other = NET.replace("ip1", "ip1_new").replace("num_output: 4", "num_output: 5")
    save_weights(net_of(other), "other.caffemodel")
    save_weights(net_of(NET.replace("ip1", "z")), "same.caffemodel")
    with pytest.raises(FileError):  # b/ip2 of another shape
        covered(net_of(), "other.caffemodel")
    text = NET.replace("b/ip2", "free")
    (first, _) = warnings_of(covered(net_of(text), "other.caffemodel"), caplog)
    assert "ip1_new (other.caffemodel: 5 3 (15), 5 (5)), " in first
    assert "of other shapes" in first
    (first, _) = warnings_of(covered(net_of(text), "other.caffemodel", "same.caffemodel"), caplog)
    assert "z (same.caffemodel), of the same shapes" in first
    assert "ip1_new" not in first
    whole = (
        NET + 'layer { name: "more" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 1 } }'
    )
    save_weights(net_of(), "w.caffemodel")
    (told,) = warnings_of(covered(net_of(whole), "w.caffemodel"), caplog)
    assert told.startswith("Layer more is in none of the weights; ")
    assert told.endswith("the net has all layers that the weights have")


def test_several_files_are_looked_at_together() -> None:
    save_weights(net_of(NET.replace("ip1", "fc1")), "a.caffemodel")
    save_weights(net_of(NET.replace("b/ip2", "fc2")), "b.caffemodel.h5")
    assert names(covered(net_of(), "a.caffemodel")) == ["ip1"]
    assert names(covered(net_of(), "a.caffemodel", "b.caffemodel.h5")) == []


@pytest.mark.parametrize("path", ["w.caffemodel", "w.caffemodel.h5"])
def test_shared_parameters_are_there_if_a_layer_has_them(path: str, caplog: pytest.LogCaptureFixture) -> None:
    save_weights(net_of(SHARING % ("b", "b")), path)
    assert names(covered(net_of(SHARING % ("b", "b")), path)) == []
    # Of the owner the file has nothing, and of its values what the layer has that shares its weights.
    file = pb.NetParameter()
    layer = file.layer.add(name="two")
    for shape in ((4, 3), (4,)):
        blob = layer.blobs.add(data=[1.0] * (12 if len(shape) == 2 else 4))
        blob.shape.dim.extend(shape)
    Path("two.caffemodel").write_bytes(file.SerializeToString())
    assert names(covered(net_of(SHARING % ("b", "b")), "two.caffemodel")) == []
    apart = covered(net_of(SHARING % ("b1", "b2")), "two.caffemodel")
    assert names(apart) == ["one"]
    (told,) = warnings_of(apart, caplog)
    assert told.startswith("Layer one (blob 1) is in none of the weights; ")


UPSAMPLE = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 2 kernel_size: 1 } }
layer { name: "up" type: "Deconvolution" bottom: "c" top: "up" convolution_param { num_output: 2 group: 2 kernel_size: 4
  stride: 2 bias_term: false %s } }
layer { name: "side" type: "Convolution" bottom: "c" top: "side" convolution_param { num_output: 2 kernel_size: 1 } }
"""


@pytest.mark.parametrize(
    ("filler", "asked", "refused"),
    [
        ('weight_filler { type: "bilinear" }', "up", ""),  # FCN's nets: the kernel stands in the text
        ('weight_filler { type: "gaussian" }', "up", "up"),
        ("", "up", "up"),  # a deploy text without fillers gives zeros
        ('weight_filler { type: "bilinear" }', "side", "side"),
        ("", "c", ""),  # nothing of what is asked for depends on what is missing
    ],
)
def test_what_nobody_has_trained_is_refused(filler: str, asked: str, refused: str) -> None:
    text = UPSAMPLE % filler
    save_weights(net_of(UPSAMPLE.replace('"up"', '"x1"').replace('"side"', '"x2"') % filler), "w.caffemodel")
    net = net_of(text)
    coverage = covered(net, "w.caffemodel")
    assert names(coverage) == ["up", "side"]
    edges = [net.graph.blobs[asked]]
    coverage.check(MissingWeights.WARN, edges)
    with pytest.raises(FileError, match="layers up, side are in none of the weights"):
        coverage.check(MissingWeights.REFUSE, edges)
    if not refused:
        coverage.check(MissingWeights.REFUSE_RANDOM, edges)
        return
    with pytest.raises(FileError, match=f"layer {refused} is in none of the weights") as caught:
        coverage.check(MissingWeights.REFUSE_RANDOM, edges)
    assert caught.value.path == "w.caffemodel"
