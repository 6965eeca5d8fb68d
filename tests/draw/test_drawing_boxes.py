"""Boxes and arrows of a net's text."""

from __future__ import annotations

from google.protobuf import text_format

from bpt.draw.drawing_boxes import Arrow, Part, Row, drawing_of
from bpt.graph.source import layer_specs
from bpt.graph.spec import Shape
from bpt.graph.state import filter_layers, make_state
from bpt.proto import bpt_pb2 as pb

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


def part(phase: str, shapes: dict[tuple[int, int], Shape] | None = None) -> Part:
    specs = layer_specs(text_format.Parse(NET, pb.NetParameter()))
    admitted = filter_layers(specs, make_state(pb.Phase.Value(phase)))
    return Part(phase, tuple((specs.index(spec), spec) for spec in admitted), shapes or {})


def test_layers_in_place_are_rows() -> None:
    drawing = drawing_of([part("TRAIN")])
    assert [box.name for box in drawing.boxes] == ["d", "ip", "q", "loss"]
    assert drawing.boxes[1].rows == (Row("ReLU", "activation"), Row("Dropout 0.5", "activation"))
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
