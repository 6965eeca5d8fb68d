"""Layers in a few words."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.draw.drawing_details import COLOURS, KINDS, OTHER, detail_of, kind_of
from bpt.graph.spec import LayerSpec
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb


def spec(text: str) -> LayerSpec:
    return LayerSpec(text_format.Parse(text, pb.LayerParameter()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('type: "ReLU"', "ReLU"),
        ('type: "Convolution" convolution_param { num_output: 20 kernel_size: 5 }', "Convolution 5×5, 20"),
        (
            'type: "Convolution" convolution_param { num_output: 8 kernel_h: 1 kernel_w: 3 stride: 2 pad_h: 0 pad_w: 1 '
            "group: 4 dilation: 1 }",
            "Convolution 1×3, 8, stride 2, pad 0×1, group 4",
        ),
        ('type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }',
         "Pooling AVE 3×3, stride 2, pad 1"),
        ('type: "Pooling" pooling_param { global_pooling: true }', "Pooling MAX global"),
        ('type: "InnerProduct" inner_product_param { num_output: 10 }', "InnerProduct 10"),
        ('type: "Dropout" dropout_param { dropout_ratio: 0.4 }', "Dropout 0.4"),
        ('type: "Eltwise"', "Eltwise SUM"),
        ('type: "Data" data_param { source: "data/a/train_lmdb/" }', "Data train_lmdb"),
        ('type: "Accuracy" accuracy_param { top_k: 5 }', "Accuracy top 5"),
        ('type: "Accuracy"', "Accuracy"),
        ('type: "NoSuchLayer"', "NoSuchLayer"),
    ],
)  # fmt: skip
def test_details(text: str, words: str) -> None:
    assert detail_of(spec(text)) == words


def test_a_kernel_of_three_axes() -> None:
    assert detail_of(spec('type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 }'), 3).startswith(
        "Convolution 3×3×3, 2"
    )


def test_every_layer_type_has_a_kind_with_a_colour() -> None:
    assert set(COLOURS) == set(KINDS)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert {name for name in LAYERS if kind_of(name) == OTHER} <= {"Python", "HDF5Output"}
    assert kind_of("ImageData") == "data"
    assert kind_of("HingeLoss") == "loss and score"
