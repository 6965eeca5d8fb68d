"""Boxes of a drawing: their words and colours, and the blobs between them."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.apps.draw.drawing_boxes import COLOURS, KINDS, Arrow, InPlaceRow, PhaseDrawing, detail_of, drawing_of, kind_of
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS


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
    assert {name for name in LAYERS if kind_of(name) == "other"} <= {"Python", "HDF5Output", "PriorBox", "Proposal"}
    assert kind_of("ImageData") == "data"
    assert kind_of("HingeLoss") == "loss and score"


NET = """
layer { name: "d" type: "Data" top: "x" top: "label" include { phase: TRAIN } }
layer { name: "d" type: "Data" top: "x" top: "label" include { phase: TEST } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" param { lr_mult: 1 name: "w" } param { lr_mult: 0.5 } }
layer { name: "r" type: "ReLU" bottom: "y" top: "y" }
layer { name: "drop" type: "Dropout" bottom: "y" top: "y" include { phase: TRAIN } }
layer { name: "q" type: "InnerProduct" bottom: "y" top: "z" param { name: "w" } }
layer { name: "acc" type: "Accuracy" bottom: "z" bottom: "label" top: "acc" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "z" bottom: "label" top: "loss" }
"""


def part(phase: str, shapes: dict[tuple[int, int], Shape] | None = None) -> PhaseDrawing:
    specs = layer_specs(text_format.Parse(NET, pb.NetParameter()))
    admitted = filter_layers(specs, make_state(pb.Phase.Value(phase)))
    return PhaseDrawing(phase, tuple((specs.index(spec), spec) for spec in admitted), shapes or {})


def test_layers_in_place_are_rows() -> None:
    drawing = drawing_of([part("TRAIN")])
    assert [box.name for box in drawing.boxes] == ["d", "ip", "q", "loss"]
    assert drawing.boxes[1].rows == (InPlaceRow("ReLU", "activation"), InPlaceRow("Dropout 0.5", "activation"))
    assert drawing.boxes[2].detail == "InnerProduct 0, weights of ip"


def test_arrows_with_shapes() -> None:
    shapes: dict[tuple[int, int], Shape] = {(0, 0): (8, 3, 5, 5), (0, 1): (8,), (2, 0): (8, 4), (7, 0): ()}
    assert drawing_of([part("TRAIN", shapes)]).arrows == (
        Arrow(0, 3, "label", "label"),
        Arrow(0, 1, "x", "3×5×5"),
        Arrow(1, 2, "y", "4"),
        Arrow(2, 3, "z", ""),
        Arrow(3, None, "loss", "loss"),
    )


def test_two_phases_over_each_other() -> None:
    drawing = drawing_of([part("TRAIN"), part("TEST")])
    assert [(box.name, box.detail.rpartition(" ")[2]) for box in drawing.boxes[:2]] == [
        ("d", "(TRAIN)"),
        ("d", "(TEST)"),
    ]
    assert drawing.boxes[2].rows[1].text == "Dropout 0.5 (TRAIN)"
    readers = {(arrow.source, arrow.target) for arrow in drawing.arrows}
    assert {(0, 2), (1, 2), (0, 5), (1, 5), (1, 4), (3, 4), (3, 5), (4, None), (5, None)} <= readers
    assert (0, 4) not in readers  # training does not score


def test_rates() -> None:
    assert drawing_of([part("TRAIN")], rates=True).boxes[1].detail == "InnerProduct 0, lr × 1, 0.5"
