"""Upgrades of nets and solvers, step by step and in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import ParsedText, parse_text
from bpt.config.proto.sources import read_net, read_solver
from bpt.config.proto.text import to_text
from bpt.config.proto.upgrade import upgrade_net, upgrade_solver
from tests.config.proto.messages import fill, messages
from tests.config.proto.recorded_upgrades import NAMES
from tests.config.proto.upgrade.upgraded import net, refusal, upgrade
from tests.support.golden_files import UPGRADE

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


def test_inputs_that_a_layer_makes_are_dropped() -> None:
    layer = 'layer { name: "x" type: "Input" top: "a" top: "b" input_param { shape { dim: 2 } } }'
    parsed, notes = upgrade(f'input: "a" {layer}')
    assert parsed.message == net(layer)
    assert len(notes) == 1
    assert refusal(f'input: "c" {layer}').startswith('1:1: 1 "input" needs 4 "input_dim"')


def test_input_dim() -> None:
    parsed, _ = upgrade('input: "a" input: "b" input_dim: [1,2,3,4, 5,6,7,8] layer { name: "x" }')
    shapes = "shape { dim: [1,2,3,4] } shape { dim: [5,6,7,8] }"
    layer = f'layer {{ name: "input" type: "Input" top: "a" top: "b" input_param {{ {shapes} }} }}'
    assert parsed.message == net(layer + ' layer { name: "x" }')


def test_input_shape_goes_before_input_dim() -> None:
    parsed, _ = upgrade('input: "a" input_shape { dim: [7, 8] } input_dim: 3')
    layer = 'layer { name: "input" type: "Input" top: "a" input_param { shape { dim: [7, 8] } } }'
    assert parsed.message == net(layer)


def test_places_follow_the_layers() -> None:
    parsed, notes = upgrade('input: "a"\ninput_shape {}\nlayer {}\nlayer { type: "b" }')
    assert [parsed.origin("layer", index).line for index in range(3)] == [1, 3, 4]
    assert parsed.origin("layer", 2, "type").column == 9
    assert parsed.origin("layer").line == 1
    assert [str(note) for note in notes] == [
        "n.prototxt:1:1: Successfully upgraded file specified using deprecated input fields"
    ]


def test_weights_name_inputs_without_dimensions() -> None:
    message = pb.NetParameter(input=["a"])
    message.layer.add(name="x")
    upgrade_net(message, {}, None)
    assert message == net('layer { name: "x" }')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'input: "a"\ninput_dim: [1,2,3]',
            '1:1: 1 "input" needs 4 "input_dim" (4 for each), not 3; "input_shape" takes any number of dimensions',
        ),
        ('input: "a" input_shape {} input_shape {}', '1:1: 1 "input" needs as many "input_shape", not 2'),
        ('input: "a"\ninput: "b" input_shape {}', '1:1: 2 "input" need as many "input_shape", not 1'),
        (
            'input: "a" input: "b"',
            '1:1: 2 "input" need 8 "input_dim" (4 for each), not 0; "input_shape" takes any number of dimensions',
        ),
        ('name: "n" input_dim: 3', '1:11: input_dim needs "input": the name of the blob that has these dimensions'),
        ('name: "n"\ninput_shape {}', '2:1: input_shape needs "input": the name of the blob that has these dimensions'),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    assert refusal(text) == message


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


def test_as_caffe_upgrades_a_solver() -> None:
    expected = parse_text((UPGRADE / "solver_v1.upgraded.prototxt").read_text(), pb.SolverParameter).message
    source = read_solver(UPGRADE / "solver_v1.prototxt")
    source.param.ClearField("snapshot_prefix")
    assert source.param == expected
    assert source.origin("type").line == 2
    assert source.notes[0] == (
        f"{UPGRADE}/solver_v1.prototxt:2:1: Successfully upgraded file specified using deprecated 'solver_type' field "
        "(enum) to 'type' field (string): type: \"RMSProp\""
    )
    # Caffe's words.
    assert source.notes[0].split(": ")[1] in (UPGRADE / "solver_v1.upgrade.log").read_text()


def test_both_types() -> None:
    path = UPGRADE / "solver_both_type_fields.prototxt"
    with pytest.raises(PrototxtError) as caught:
        read_solver(path)
    assert str(caught.value) == (
        f'{path}:3:1: "solver_type" is the old form of "type", given at {path}:2:1; keep one of them'
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SGD", "SGD"),
        ("NESTEROV", "Nesterov"),
        ("ADAGRAD", "AdaGrad"),
        ("RMSPROP", "RMSProp"),
        ("ADADELTA", "AdaDelta"),
        ("ADAM", "Adam"),
    ],
)
def test_every_old_type(old: str, new: str) -> None:
    param = pb.SolverParameter(solver_type=old)
    upgrade_solver(param, {}, "s.prototxt")
    assert param == pb.SolverParameter(type=new)


def test_nets_inside_a_solver() -> None:
    lines = (
        'net_param { input: "a" input_shape { dim: 1 } }',
        "test_net_param {}",
        'test_net_param { input: "b" input_shape {} layers { name: "r"',
        "  type: RELU } }",
    )
    parsed = parse_text("\n".join(lines), pb.SolverParameter)
    notes = upgrade_solver(parsed.message, parsed.origins, "<string>")
    (layer,) = parsed.message.net_param.layer
    assert (layer.type, list(layer.top), list(layer.input_param.shape[0].dim)) == ("Input", ["a"], [1])
    assert [layer.type for layer in parsed.message.test_net_param[1].layer] == ["Input", "ReLU"]
    assert parsed.origin("test_net_param", 1, "layer", 0).line == 3
    assert parsed.origin("test_net_param", 1, "layer", 1, "type").line == 4
    assert not [key for key in parsed.origins if "layers" in key]
    assert [note.place.line for note in notes if note.place] == [1, 3, 3]


def test_nothing_to_upgrade_in_a_solver() -> None:
    text = 'type: "Adam" net_param { name: "n" }'
    parsed = parse_text(text, pb.SolverParameter)
    assert upgrade_solver(parsed.message, parsed.origins, "<string>") == []
    assert parsed.message == parse_text(text, pb.SolverParameter).message
