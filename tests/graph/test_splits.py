"""``insert_splits``: text before, text after (the cases of Caffe's test_split_layer.cpp)."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_specs import layer_specs
from bpt.graph.splits import insert_splits
from tests.support.stand_ins import specs_of

DATA = 'layer { name: "data" type: "Data" top: "data" top: "label" }'


def check(before: str, after: str) -> None:
    """``before`` becomes ``after``, which stays as it is; ``before`` itself is not changed."""
    given = specs_of(before)
    split = insert_splits(given)
    wanted = text_format.Parse(after, pb.NetParameter())
    assert [spec.param for spec in split] == list(wanted.layer)
    assert [spec.param for spec in insert_splits(split)] == list(wanted.layer)
    assert [spec.param for spec in given] == list(text_format.Parse(before, pb.NetParameter()).layer)


def test_nothing_to_split() -> None:
    text = f"""{DATA}
        layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }}"""
    check(text, text)


def test_two_readers() -> None:
    check(
        f"""{DATA}
        layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" }}
        layer {{ name: "b" type: "InnerProduct" bottom: "data" top: "b" }}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "b" }}""",
        f"""{DATA}
        layer {{ name: "data_data_0_split" type: "Split" bottom: "data"
                 top: "data_data_0_split_0" top: "data_data_0_split_1" }}
        layer {{ name: "a" type: "InnerProduct" bottom: "data_data_0_split_0" top: "a" }}
        layer {{ name: "b" type: "InnerProduct" bottom: "data_data_0_split_1" top: "b" }}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "b" }}""",
    )


def test_one_layer_reads_twice_and_two_tops_are_split() -> None:
    check(
        f"""{DATA}
        layer {{ name: "sq" type: "Eltwise" bottom: "data" bottom: "data" top: "sq" }}
        layer {{ name: "l1" type: "SoftmaxWithLoss" bottom: "sq" bottom: "label" }}
        layer {{ name: "l2" type: "SoftmaxWithLoss" bottom: "data" bottom: "label" }}""",
        f"""{DATA}
        layer {{ name: "data_data_0_split" type: "Split" bottom: "data"
                 top: "data_data_0_split_0" top: "data_data_0_split_1" top: "data_data_0_split_2" }}
        layer {{ name: "label_data_1_split" type: "Split" bottom: "label"
                 top: "label_data_1_split_0" top: "label_data_1_split_1" }}
        layer {{ name: "sq" type: "Eltwise" bottom: "data_data_0_split_0" bottom: "data_data_0_split_1" top: "sq" }}
        layer {{ name: "l1" type: "SoftmaxWithLoss" bottom: "sq" bottom: "label_data_1_split_0" }}
        layer {{ name: "l2" type: "SoftmaxWithLoss" bottom: "data_data_0_split_2" bottom: "label_data_1_split_1" }}""",
    )


def test_in_place_layers_make_new_versions() -> None:
    check(
        f"""{DATA}
        layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" }}
        layer {{ name: "r" type: "ReLU" bottom: "a" top: "a" }}
        layer {{ name: "b" type: "InnerProduct" bottom: "a" top: "b" }}
        layer {{ name: "l1" type: "EuclideanLoss" bottom: "a" bottom: "b" }}
        layer {{ name: "l2" type: "EuclideanLoss" bottom: "b" bottom: "data" }}""",
        f"""{DATA}
        layer {{ name: "data_data_0_split" type: "Split" bottom: "data"
                 top: "data_data_0_split_0" top: "data_data_0_split_1" }}
        layer {{ name: "a" type: "InnerProduct" bottom: "data_data_0_split_0" top: "a" }}
        layer {{ name: "r" type: "ReLU" bottom: "a" top: "a" }}
        layer {{ name: "a_r_0_split" type: "Split" bottom: "a" top: "a_r_0_split_0" top: "a_r_0_split_1" }}
        layer {{ name: "b" type: "InnerProduct" bottom: "a_r_0_split_0" top: "b" }}
        layer {{ name: "b_b_0_split" type: "Split" bottom: "b" top: "b_b_0_split_0" top: "b_b_0_split_1" }}
        layer {{ name: "l1" type: "EuclideanLoss" bottom: "a_r_0_split_1" bottom: "b_b_0_split_0" }}
        layer {{ name: "l2" type: "EuclideanLoss" bottom: "b_b_0_split_1" bottom: "data_data_0_split_1" }}""",
    )


def test_a_loss_that_is_read() -> None:
    # The first copy carries the weight and has no reader.
    check(
        f"""{DATA}
        layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" loss_weight: 2.5 }}
        layer {{ name: "l" type: "EuclideanLoss" bottom: "a" bottom: "label" }}""",
        f"""{DATA}
        layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" loss_weight: 0 }}
        layer {{ name: "a_a_0_split" type: "Split" bottom: "a" top: "a_a_0_split_0" top: "a_a_0_split_1"
                 loss_weight: 2.5 loss_weight: 0 }}
        layer {{ name: "l" type: "EuclideanLoss" bottom: "a_a_0_split_1" bottom: "label" }}""",
    )


def test_a_loss_that_nobody_reads() -> None:
    text = f"""{DATA}
        layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" loss_weight: 2.5 }}
        layer {{ name: "s" type: "Silence" bottom: "label" }}"""
    check(text, text)


def test_only_the_top_that_is_read_is_split() -> None:
    check(
        """layer { name: "d" type: "Data" top: "x" top: "y" loss_weight: 3 loss_weight: 4 }
        layer { name: "s" type: "Silence" bottom: "y" }""",
        """layer { name: "d" type: "Data" top: "x" top: "y" loss_weight: 3 loss_weight: 0 }
        layer { name: "y_d_1_split" type: "Split" bottom: "y" top: "y_d_1_split_0" top: "y_d_1_split_1"
                loss_weight: 4 loss_weight: 0 }
        layer { name: "s" type: "Silence" bottom: "y_d_1_split_1" }""",
    )


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
