"""``insert_splits``: text before, text after (the cases of Caffe's test_split_layer.cpp)."""

from __future__ import annotations

import re

import pytest
from google.protobuf import text_format

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_specs import layer_specs
from bpt.graph.splits import insert_splits
from tests.support.stand_ins import specs_of

# Layers before and after, each as "name type: bottoms -> tops; more".
CASES = {
    "nothing to split": ("ip InnerProduct: data -> ip | loss SoftmaxWithLoss: ip label ->", None),
    "two readers": (
        "a InnerProduct: data -> a | b InnerProduct: data -> b | loss EuclideanLoss: a b ->",
        "data_data_0_split Split: data -> data_data_0_split_0 data_data_0_split_1"
        " | a InnerProduct: data_data_0_split_0 -> a | b InnerProduct: data_data_0_split_1 -> b"
        " | loss EuclideanLoss: a b ->",
    ),
    "one layer reads twice and two tops are split": (
        "sq Eltwise: data data -> sq | l1 SoftmaxWithLoss: sq label -> | l2 SoftmaxWithLoss: data label ->",
        "data_data_0_split Split: data -> data_data_0_split_0 data_data_0_split_1 data_data_0_split_2"
        " | label_data_1_split Split: label -> label_data_1_split_0 label_data_1_split_1"
        " | sq Eltwise: data_data_0_split_0 data_data_0_split_1 -> sq"
        " | l1 SoftmaxWithLoss: sq label_data_1_split_0 ->"
        " | l2 SoftmaxWithLoss: data_data_0_split_2 label_data_1_split_1 ->",
    ),
    "in-place layers make new versions": (
        "a InnerProduct: data -> a | r ReLU: a -> a | b InnerProduct: a -> b"
        " | l1 EuclideanLoss: a b -> | l2 EuclideanLoss: b data ->",
        "data_data_0_split Split: data -> data_data_0_split_0 data_data_0_split_1"
        " | a InnerProduct: data_data_0_split_0 -> a | r ReLU: a -> a"
        " | a_r_0_split Split: a -> a_r_0_split_0 a_r_0_split_1"
        " | b InnerProduct: a_r_0_split_0 -> b"
        " | b_b_0_split Split: b -> b_b_0_split_0 b_b_0_split_1"
        " | l1 EuclideanLoss: a_r_0_split_1 b_b_0_split_0 ->"
        " | l2 EuclideanLoss: b_b_0_split_1 data_data_0_split_1 ->",
    ),
    "a loss that is read": (  # the first copy carries the weight and has no reader
        "a InnerProduct: data -> a; loss_weight: 2.5 | l EuclideanLoss: a label ->",
        "a InnerProduct: data -> a; loss_weight: 0"
        " | a_a_0_split Split: a -> a_a_0_split_0 a_a_0_split_1; loss_weight: 2.5 loss_weight: 0"
        " | l EuclideanLoss: a_a_0_split_1 label ->",
    ),
    "a loss that nobody reads": ("a InnerProduct: data -> a; loss_weight: 2.5 | s Silence: label ->", None),
    "only the top that is read is split": (
        "d Data: -> x y; loss_weight: 3 loss_weight: 4 | s Silence: y ->",
        "d Data: -> x y; loss_weight: 3 loss_weight: 0"
        " | y_d_1_split Split: y -> y_d_1_split_0 y_d_1_split_1; loss_weight: 4 loss_weight: 0"
        " | s Silence: y_d_1_split_1 ->",
    ),
}


def text_of(layers: str) -> str:
    text = 'layer { name: "data" type: "Data" top: "data" top: "label" }'
    for name, kind, bottoms, tops, more in re.findall(r"(\w+) (\w+):([^>]*)->([^;|]*);?([^|]*)", layers):
        read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms.split())
        made = " ".join(f'top: "{top}"' for top in tops.split())
        text += f'\nlayer {{ name: "{name}" type: "{kind}" {read} {made} {more} }}'
    return text


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_copies_for_each_reader(before: str, after: str | None) -> None:
    """What has its copies stays as it is; the layers that were given are not changed."""
    text = text_of(before)
    given, wanted = specs_of(text), text_format.Parse(text_of(after or before), pb.NetParameter())
    split = insert_splits(given)
    assert [spec.param for spec in split] == list(wanted.layer)
    assert [spec.param for spec in insert_splits(split)] == list(wanted.layer)
    assert [spec.param for spec in given] == list(text_format.Parse(text, pb.NetParameter()).layer)


def test_the_written_names_are_kept_for_messages() -> None:
    layers = specs_of(
        'layer { name: "in" top: "x" } layer { name: "a" bottom: "x" top: "y" } layer { name: "b" bottom: "x" }'
    )
    twice = insert_splits(insert_splits(layers))
    assert [spec.bottoms for spec in twice] == [(), ("x",), ("x_in_0_split_0",), ("x_in_0_split_1",)]
    assert [spec.bottom_names for spec in twice] == [(), ("x",), ("x",), ("x",)]


@pytest.mark.parametrize(
    ("before", "hint"),
    [
        ('layer { name: "d" top: "data" }', '; did you mean "data"?'),
        ('layer { name: "d" top: "x" top: "y" }', " (made so far: x, y)"),
        ("", " (this is the first layer)"),
    ],
)
def test_a_bottom_that_nobody_makes(before: str, hint: str) -> None:
    layers = specs_of(f'{before}\nlayer {{ name: "a" bottom: "dta" }}')
    with pytest.raises(LayerError) as caught:
        insert_splits(layers)
    assert str(caught.value) == f'net.prototxt:2:19: layer "a": no earlier layer makes bottom "dta"{hint}'


def test_a_bottom_that_only_a_later_layer_makes() -> None:
    layers = layer_specs(
        pb.NetParameter(layer=[pb.LayerParameter(name="a", bottom=["x"]), pb.LayerParameter(name="b", top=["x"])])
    )
    with pytest.raises(LayerError) as caught:
        insert_splits(layers)
    assert str(caught.value) == 'layer "a": no earlier layer makes bottom "x" (this is the first layer)'
