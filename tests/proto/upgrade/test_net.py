"""Whole nets, against those that Caffe upgraded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bpt.errors import PrototxtError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.format import to_text
from bpt.proto.parse import ParsedText, parse_text
from bpt.proto.sources import read_net
from bpt.proto.upgrade import upgrade_net
from tests.proto.golden import UPGRADE
from tests.proto.messages import fill, messages
from tests.proto.upgrade.upgraded import net, refusal, upgrade

NAMES = ("v0_net", "v0_deploy", "v1_deploy", "v1_train_val", "v2_inputfields_bn")


@pytest.mark.parametrize("name", NAMES)
def test_as_caffe_upgrades_it(name: str) -> None:
    source = read_net(UPGRADE / f"{name}.prototxt")
    assert source.param == net((UPGRADE / f"{name}.upgraded.prototxt").read_text())
    *said, hint = source.notes
    said_by_caffe = re.findall(r"Successfully .*[\w)]", (UPGRADE / f"{name}.upgrade.log").read_text())
    assert [note.split(": ", 1)[1] for note in said] == said_by_caffe
    assert hint.startswith(f"{source.path}: upgraded in memory only; tools/upgrade_net_proto_text.py")


@pytest.mark.parametrize("name", NAMES)
def test_places_are_those_of_the_old_text(name: str) -> None:
    path = UPGRADE / f"{name}.prototxt"
    lines = path.read_text().splitlines()
    source = read_net(path)
    for index, layer in enumerate(source.param.layer):
        if layer.type == "Input":
            assert lines[source.origin("layer", index).line - 1].startswith("input: ")
            continue
        origin = source.origin("layer", index, "name")
        assert lines[origin.line - 1][origin.column - 1 :].startswith(f'name: "{layer.name}"')
        for blob in range(len(layer.bottom)):
            origin = source.origin("layer", index, "bottom", blob)
            assert lines[origin.line - 1][origin.column - 1 :].startswith('bottom: "')


def test_nothing_to_upgrade() -> None:
    text = 'name: "n" layer { name: "a" } layer { type: "BatchNorm" param { lr_mult: 0 } }'
    parsed, notes = upgrade(text)
    assert parsed.message == net(text)
    assert notes == []


def test_old_layers_along_with_new_ones() -> None:
    assert refusal('name: "n"\nlayers { name: "a" }\nlayer { name: "b" }') == (
        '2:1: the net has layers in the old format, "layers", along with new ones, "layer" (at n.prototxt:3:1), which '
        'Caffe would drop; write all of them as "layer"'
    )
    mixed = pb.NetParameter()
    mixed.layers.add()
    mixed.layer.add()
    with pytest.raises(PrototxtError, match=r'^the net has layers in the old format, "layers", along with new ones'):
        upgrade_net(mixed, {}, None)


def test_fields_of_the_net_stay() -> None:
    around = 'name: "n" force_backward: true debug_info: true state { stage: "s" }'
    for old in ('layers { name: "r" type: RELU }', 'layers { layer { name: "r" type: "relu" } }'):
        parsed, _ = upgrade(f"{around} {old}")
        assert parsed.message == net(around + ' layer { name: "r" type: "ReLU" }')


def test_a_message_that_is_from_no_text() -> None:
    message = pb.NetParameter(input=["a"], input_dim=[1, 2, 3, 4])
    message.layers.add(name="r", type="RELU")
    notes = upgrade_net(message, {}, None)
    assert [layer.type for layer in message.layer] == ["Input", "ReLU"]
    assert [str(note) for note in notes] == [
        "Successfully upgraded file specified using deprecated V1LayerParameter",
        "Successfully upgraded file specified using deprecated input fields",
    ]


def error_of(parsed: ParsedText[pb.NetParameter]) -> PrototxtError | None:
    """Upgrades a net; what is raised if it is refused."""
    try:
        upgrade_net(parsed.message, parsed.origins, parsed.path)
    except PrototxtError as error:
        return error
    return None


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_any_net_is_upgraded_for_good_or_refused(data: st.DataObject) -> None:
    message = data.draw(messages(pb.NetParameter))
    for _ in range(data.draw(st.integers(0, 3))):
        old = message.layers.add()
        fill(data.draw, old, 3)
        if data.draw(st.booleans()):
            old.Clear()
            fill(data.draw, old.layer, 6)
    parsed = parse_text(to_text(message), pb.NetParameter, "n.prototxt")
    refused = error_of(parsed)
    if refused:
        assert str(refused).startswith("n.prototxt:")
        return
    new = to_text(parsed.message)
    again = parse_text(new, pb.NetParameter, "n.prototxt")
    assert upgrade_net(again.message, again.origins, again.path) == []
    assert to_text(again.message) == new
    assert not message.layers or not again.message.layers


def test_recordings_are_all_used() -> None:
    found = {path.name.removesuffix(".prototxt") for path in Path(UPGRADE).glob("v*_*.prototxt")}
    assert {name for name in found if not name.endswith((".upgraded", "weights_net"))} == set(NAMES)
