"""scale, mean_file, crop_size and mirror of V1 data layers."""

from __future__ import annotations

import pytest

from tests.proto.upgrade.upgraded import net, upgrade

OLD = 'scale: 0.5 mean_file: "m" crop_size: 3 mirror: true'


@pytest.mark.parametrize(
    ("old", "new", "param"),
    [
        ("DATA", "Data", "data_param"),
        ("IMAGE_DATA", "ImageData", "image_data_param"),
        ("WINDOW_DATA", "WindowData", "window_data_param"),
    ],
)
def test_they_move(old: str, new: str, param: str) -> None:
    parsed, notes = upgrade(f'layers {{ type: {old} {param} {{ source: "s"\n{OLD} }} }}')
    assert parsed.message == net(f'layer {{ type: "{new}" {param} {{ source: "s" }} transform_param {{ {OLD} }} }}')
    places = {"scale": "2:1", "crop_size": "2:27", "mean_value": "2:1"}
    assert {field: str(parsed.origin("layer", 0, "transform_param", field)) for field in places} == {
        field: f"n.prototxt:{place}" for field, place in places.items()
    }
    words = "Successfully upgraded file specified using deprecated data transformation parameters"
    assert str(notes[0]) == f"n.prototxt:1:1: {words}"


def test_they_replace_new_ones() -> None:
    parsed, _ = upgrade(
        "layers { type: DATA\ntransform_param { scale: 2 force_gray: true }\ndata_param { scale: 0.5 } }"
    )
    assert parsed.message == net('layer { type: "Data" data_param {} transform_param { scale: 0.5 force_gray: true } }')
    assert parsed.origin("layer", 0, "transform_param", "scale").line == 3
    assert parsed.origin("layer", 0, "transform_param").line == 2


def test_other_layers_keep_them() -> None:
    parsed, notes = upgrade("layers { type: RELU data_param { scale: 0.5 } }")
    assert parsed.message == net('layer { type: "ReLU" data_param { scale: 0.5 } }')
    assert len(notes) == 1
