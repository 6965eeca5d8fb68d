"""Values of parameters in a text (blobs), and settings of another type of layer, of which bpt tells."""

from __future__ import annotations

import logging

import pytest
import torch

from bpt.base.errors import LayerError
from bpt.graph.part import BlobSlice, Part
from bpt.nn.layers import LAYERS
from bpt.nn.layers.layer_text import settings_of
from bpt.nn.net import Net
from tests.support.one_layer import one_layer, one_layer_graph
from tests.support.stand_ins import build, unmarked

IP = 'type: "InnerProduct" inner_product_param { num_output: 2 weight_filler { type: "xavier" } }'
WEIGHT = "blobs { shape { dim: 2 dim: 3 } data: [1, 2, 3, 4, 5, 6] }"


def test_they_take_the_place_of_fillers() -> None:
    layer = one_layer(f"{IP} {WEIGHT} blobs {{ shape {{ dim: 2 }} double_data: [0.5, -1] }}", (1, 3))
    assert [blob.tolist() for blob in layer.blobs] == [[[1, 2, 3], [4, 5, 6]], [0.5, -1]]
    assert layer(torch.tensor([[1.0, 0, 2]])).tolist() == [[7.5, 15]]


def test_blobs_of_old_texts_have_four_axes() -> None:
    old = "blobs { num: 1 channels: 1 height: 2 width: 3 data: [1, 2, 3, 4, 5, 6] }"
    bias = "blobs { num: 1 channels: 1 height: 1 width: 2 data: [7, 8] }"
    layer = one_layer(f"{IP} {old} {bias}", (1, 3))
    assert [blob.tolist() for blob in layer.blobs] == [[[1, 2, 3], [4, 5, 6]], [7, 8]]


def test_a_rank_takes_its_slice() -> None:
    graph = one_layer_graph(f"{IP} {WEIGHT} blobs {{ shape {{ dim: 2 }} data: [7, 8] }}", (1, 3))
    net = Net(graph, part=Part(slices={0: BlobSlice(0, 1, 2), 1: BlobSlice(0, 1, 2)}))
    assert [net.value(param).tolist() for param in graph.params] == [[[4, 5, 6]], [8]]


@pytest.mark.parametrize(
    ("blobs", "message"),
    [
        (f"§{WEIGHT}", "1 blobs in the text for 2 parameter blobs"),
        (f"{WEIGHT} §blobs {{ shape {{ dim: 3 }} data: [1, 2, 3] }}", "blob 1 has shape (3,), the parameter (2,)"),
        (f"{WEIGHT} §blobs {{ shape {{ dim: 2 }} data: 1 }}", "a blob of shape 2 needs 2 values, but has 1"),
    ],
)
def test_what_does_not_fit(blobs: str, message: str) -> None:
    source = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 } } }'
    text, place = unmarked(f'{source} layer {{ name: "L" bottom: "x" top: "y" {IP} {blobs} }}')
    with pytest.raises(LayerError) as caught:
        Net(build(text, types=LAYERS))
    assert str(caught.value) == f'{place}: layer "L": {message}'


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('type: "ReLU" pooling_param { kernel_size: 3 }', "pooling_param"),
        ('type: "Split" transform_param { scale: 2 }', "transform_param"),
        ('type: "Softmax" loss_param { ignore_label: 1 }', "loss_param"),
        ('type: "TanH" attention_param { scale: 2 }', "attention_param"),
    ],
)
def test_strangers(body: str, field: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = one_layer(body, (2, 3))
    assert caplog.messages == [f'layer "L": {field} has no effect, since {layer.spec.type} does not read it']


@pytest.mark.parametrize(
    "body",
    [
        'type: "ReLU6" relu_param { negative_slope: 0.1 }',
        'type: "Normalize" norm_param { across_spatial: false }',
        'type: "ConvolutionDepthwise" convolution_param { num_output: 2 kernel_size: 1 }',
        'type: "DepthwiseConvolution" convolution_param { num_output: 2 kernel_size: 1 }',
        'type: "Softmax" parallel_param { mode: DATA } softmax_param { axis: 2 }',
    ],
)
def test_its_own(body: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        one_layer(body, (1, 2, 3, 4))
    assert caplog.messages == []


def test_types_without_settings() -> None:
    """If a new type is among them by mistake, all its settings would be called strangers."""
    without = {name for name in LAYERS if settings_of(name) is None}
    assert without == {
        "AbsVal", "Axpy", "BNLL", "BatchReindex", "EuclideanLoss", "Filter", "LSTMUnit", "MultinomialLogisticLoss",
        "Silence", "Split",
    }  # fmt: skip
