"""Which input, which scores and which layer ``bpt explain`` finds in a net."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bpt.apps.classify.classifier_net import classifier_net
from bpt.apps.explain.explained_layer import find_layer, layer_of
from bpt.base.errors import LayerError, UserError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from tests.support.explain_nets import SOFTMAX, conv, explained, input_layer, pool, relu, scores
from tests.support.paths import PROTOTXT

BODY = (conv("c1", "data", 2, 3), relu("r1", "c1"), conv("c2", "c1", 3, 3), pool("c2"), scores("pool", 4))
VOLUMES = """layer { name: "scans" type: "VolumeData" top: "data" top: "label" include { phase: TEST }
  volume_data_param { source: "nowhere.txt" batch_size: 4 shape: 8 intensity: MIN_MAX } }"""
LOSS = """layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


def test_deploy(tmp_path: Path) -> None:
    """A batch of 10 becomes one sample."""
    net = explained(tmp_path, input_layer(10, 1, 8, 8, 8), *BODY, SOFTMAX)
    assert net.input.shape == (1, 1, 8, 8, 8)
    assert (net.scores.blob, net.scores.shape, net.classes, net.axes) == ("ip", (1, 4), 4, 3)
    assert (net.found, net.by_softmax, net.left_out) == ('the bottom of "prob", the last softmax', True, ())
    assert (layer_of(net.graph, find_layer(net)), find_layer(net).blob) == ("c2", "c2")


def test_train_val_text(tmp_path: Path) -> None:
    """Its data need not be there: what is wanted of them stands in the text. The loss holds a softmax."""
    net = explained(tmp_path, VOLUMES, *BODY, LOSS)
    assert net.input.shape == (1, 1, 8, 8, 8)
    assert (net.data.name, net.data.type) == ("scans", "VolumeData")
    assert (net.scores.blob, net.found) == ("ip", 'the bottom of "loss", the last softmax')
    assert net.by_softmax
    assert net.left_out == ("accuracy",)
    assert [node.type for node in net.graph.nodes if node.type != "Split"] == [
        "Input", "Convolution", "ReLU", "Convolution", "Pooling", "InnerProduct", "Softmax",
    ]  # fmt: skip


def test_without_softmax_the_output(tmp_path: Path) -> None:
    net = explained(tmp_path, input_layer(1, 1, 8, 8), *BODY)
    assert (net.scores.blob, net.found, net.by_softmax) == ("ip", "the net's output", False)


def test_a_softmax_inside_the_net_is_none_of_classes(tmp_path: Path) -> None:
    inside = 'layer { name: "gate" type: "Softmax" bottom: "c2" top: "gate" }'
    net = explained(tmp_path, input_layer(1, 1, 8, 8), *BODY[:3], inside, pool("gate"), scores("pool", 4))
    assert (net.scores.blob, net.found, net.by_softmax) == ("ip", "the net's output", False)


def test_scores_of_a_fully_convolutional_net(tmp_path: Path) -> None:
    softmax = SOFTMAX.replace('"ip"', '"pool"')
    net = explained(tmp_path, input_layer(1, 1, 8, 8), *BODY[:3], pool("c2"), softmax)
    assert (net.scores.blob, net.scores.shape) == ("pool", (1, 3, 1, 1))
    assert find_layer(net).blob == "c2"


@pytest.mark.parametrize(
    ("path", "layer", "blob", "shape"),
    [
        ("lenet/deploy.prototxt", "pool2", "pool2", (1, 50, 4, 4)),
        ("resnet20/deploy.prototxt", "", "", (1, 64, 8, 8)),
        ("googlenet/deploy.prototxt", "inception_5b/output", "inception_5b/output", (1, 1024, 7, 7)),
    ],
)
def test_the_last_layer_with_places_of_known_nets(path: str, layer: str, blob: str, shape: tuple[int, ...]) -> None:
    net = classifier_net(file_plan(str(PROTOTXT / path), pb.TEST))
    edge = find_layer(net)
    assert edge.shape == shape
    if layer:
        assert (layer_of(net.graph, edge), edge.blob) == (layer, blob)


def test_names(tmp_path: Path) -> None:
    """A layer's name means what it makes, also if one in place goes on with that."""
    net = explained(tmp_path, input_layer(1, 1, 8, 8), *BODY, SOFTMAX)
    assert [layer_of(net.graph, find_layer(net, name)) for name in ("c1", "r1", "c2", "data")] == [
        "c1", "r1", "c2", "data",
    ]  # fmt: skip
    other = explained(tmp_path, input_layer(1, 1, 8, 8), *(text.replace('"c1" type', '"x" type') for text in BODY))
    assert layer_of(other.graph, find_layer(other, "c1")) == "r1"


SLICE = """layer { name: "cut" type: "Slice" bottom: "c2" top: "one" top: "two" }
layer { name: "quiet" type: "Silence" bottom: "two" }"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c3", '--layer "c3": no layer or blob has this name; did you mean "c2" or "c1"?'),
        ("zzzz", "no layer or blob has this name (with spatial axes: data, c1, r1, c2, cut, pool, one, two)"),
        ("ip", 'its shape (1, 4) has 0 spatial axes, that of the input (1, 1, 8, 8) has 2'),
        ("cut", 'the layer has 2 tops (one, two); name one of them'),
        ("quiet", 'the layer has 0 tops (none); name one of them'),
        ("two", 'the class scores do not depend on it'),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_explained(tmp_path: Path, name: str, message: str) -> None:
    layers = (*BODY[:2], conv("c2", "c1", 4, 3), SLICE, pool("one"), BODY[4], SOFTMAX)
    net = explained(tmp_path, input_layer(1, 1, 8, 8), *layers)
    with pytest.raises(UserError, match=re.escape(message)):
        find_layer(net, name)


def test_no_layer_has_places(tmp_path: Path) -> None:
    net = explained(tmp_path, input_layer(1, 1, 8, 8), scores("data", 2), SOFTMAX)
    with pytest.raises(UserError, match="no layer before the scores has 2 spatial axes"):
        find_layer(net)


TWO = 'layer { name: "more" type: "InnerProduct" bottom: "pool" top: "more" inner_product_param { num_output: 2 } }'
NEEDY = """layer { name: "age" type: "Input" top: "age" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "with_age" type: "Eltwise" bottom: "ip" bottom: "age" top: "both" }
layer { name: "quiet" type: "Silence" bottom: "ip" }"""


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((input_layer(1, 4), scores("data", 2)), 'no input with spatial axes (N, channels, …); layers without bottoms'),
        ((input_layer(1, 1, 8, 8), *BODY, TWO), 'not one output ("ip", "more")'),
        ((input_layer(1, 1, 8, 8), *BODY, NEEDY), "left out, because they need more than the input: with_age"),
        ((input_layer(1, 1, 8, 8), *BODY[:3]), 'has shape (1, 3, 8, 8); there must be a score for each class'),
        ((VOLUMES.replace("shape: 8", "shape: 8 shape: 8"), *BODY), "layer \"scans\": volume_data_param needs a shape"),
        ((VOLUMES.replace("VolumeData", "VolumData"), *BODY), 'unknown layer type "VolumData"'),
    ],
)  # fmt: skip
def test_nets_that_cannot_be_explained(tmp_path: Path, layers: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        explained(tmp_path, *layers)


def test_classes_along_another_axis(tmp_path: Path) -> None:
    softmax = SOFTMAX.replace("top:", "softmax_param { axis: 0 } top:")
    with pytest.raises(LayerError, match='layer "prob": the classes must be along axis 1'):
        explained(tmp_path, input_layer(1, 1, 8, 8), *BODY, softmax)
