"""Settings of another type of layer: Caffe passes over them in silence, bpt says so."""

from __future__ import annotations

import logging

import pytest

from bpt.layers import LAYERS
from bpt.layers.unused_settings import settings_of
from tests.one_layer import one_layer


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
