"""``param`` of BatchNorm layers."""

from __future__ import annotations

import pytest

from tests.proto.upgrade.upgraded import net, upgrade

ZERO = "param { lr_mult: 0 decay_mult: 0 }"


@pytest.mark.parametrize("param", ["param {}", "param { lr_mult: 0 }", "param { lr_mult: 1 decay_mult: 0 }"])
def test_three_are_set_to_zero(param: str) -> None:
    parsed, notes = upgrade(f'layer {{}}\nlayer {{ type: "BatchNorm" {ZERO} {param} {ZERO} }}')
    assert parsed.message == net(f'layer {{}} layer {{ type: "BatchNorm" {ZERO * 3} }}')
    words = "Successfully upgraded batch norm layers using deprecated params"
    assert [str(note) for note in notes] == [f"n.prototxt:2:1: {words}"]


def test_names_stay() -> None:
    parsed, _ = upgrade('layer { type: "BatchNorm" param { name: "m" } param {} param {} }')
    assert [param.name for param in parsed.message.layer[0].param] == ["m", "", ""]


@pytest.mark.parametrize(
    "layer",
    [
        f'type: "BatchNorm" {ZERO * 3}',
        'type: "BatchNorm" param { lr_mult: 1 }',
        'type: "Scale" param {} param {} param {}',
    ],
)
def test_others_stay(layer: str) -> None:
    text = f"layer {{ {layer} }}"
    parsed, notes = upgrade(text)
    assert parsed.message == net(text)
    assert notes == []
