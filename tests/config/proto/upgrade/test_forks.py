"""What Caffe's forks write in another way becomes what BVLC's Caffe writes."""

from __future__ import annotations

import pytest

from tests.config.proto.upgrade.upgraded import net, refusal, upgrade


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("pooling_param { pad: 1 ceil_mode: false }", "pooling_param { pad: 1 round_mode: FLOOR }", "ceil_mode"),
        ("pooling_param { ceil_mode: true }", "pooling_param { round_mode: CEIL }", "ceil_mode"),
        ("pooling_param { torch_pooling: true }", "pooling_param { round_mode: FLOOR }", "torch_pooling"),
        ("convolution_param { hole: 2 }", "convolution_param { dilation: 2 }", "hole"),
        ("convolution_param { hole_h: 2 }", "convolution_param { dilation: [2, 1] }", "hole_h"),
        ("convolution_param { hole: 4 hole_w: 3 }", "convolution_param { dilation: [4, 3] }", "hole"),
    ],
)  # fmt: skip
def test_other_names(old: str, new: str, note: str) -> None:
    parsed, notes = upgrade(f'layer {{ name: "a" }}\nlayer {{ name: "b" {old} }}')
    assert parsed.message == net(f'layer {{ name: "a" }} layer {{ name: "b" {new} }}')
    settings, field = ("pooling_param", "round_mode") if "pool" in old else ("convolution_param", "dilation")
    place = parsed.origin("layer", 1, settings, field)
    assert place.line == 2
    assert [str(each) for each in notes] == [f"{place}: {note} is read as {field}"]


def test_a_relu_inside_of_a_layer_is_one_behind_it() -> None:
    parsed, notes = upgrade("""
        layer { name: "c" type: "Convolution" bottom: "x" bottom: "y" top: "u" top: "v" include { phase: TEST }
          convolution_param { num_output: 1 relu: true negative_slope: 0.5 } }
        layer { name: "n" type: "BatchNorm" bottom: "u" top: "u" batch_norm_param { eps: 1
          relu: true } }
        layer { name: "n2" type: "BatchNorm" bottom: "u" top: "w" batch_norm_param { relu: false } }
    """)
    rule = "include { phase: TEST }"
    assert parsed.message == net(f"""
        layer {{ name: "c" type: "Convolution" bottom: "x" bottom: "y" top: "u" top: "v" {rule}
          convolution_param {{ num_output: 1 }} }}
        layer {{ name: "c_relu_0" type: "ReLU" bottom: "u" top: "u" {rule} relu_param {{ negative_slope: 0.5 }} }}
        layer {{ name: "c_relu_1" type: "ReLU" bottom: "v" top: "v" {rule} relu_param {{ negative_slope: 0.5 }} }}
        layer {{ name: "n" type: "BatchNorm" bottom: "u" top: "u" batch_norm_param {{ eps: 1 }} }}
        layer {{ name: "n_relu" type: "ReLU" bottom: "u" top: "u" }}
        layer {{ name: "n2" type: "BatchNorm" bottom: "u" top: "w" batch_norm_param {{ relu: false }} }}
    """)
    assert [str(note) for note in notes] == ["n.prototxt:3:45: relu: true is read as a ReLU"]
    assert [str(parsed.origin("layer", index)).removeprefix("n.prototxt:") for index in (1, 3, 4, 5)] == [
        "3:45", "4:9", "5:11", "6:9",
    ]  # fmt: skip


def test_both_ways_at_once_are_refused() -> None:
    assert refusal('layer { name: "p" pooling_param {\nceil_mode: true round_mode: CEIL } }') == (
        '2:1: layer "p": give round_mode, or ceil_mode, its other form; not both'
    )
    assert refusal('layer { name: "c" convolution_param {\nhole: 2 dilation: 2 } }') == (
        '2:1: layer "c": give dilation, or hole, its other form; not both'
    )
