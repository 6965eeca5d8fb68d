"""``input`` with ``input_shape`` or ``input_dim`` becomes a layer."""

from __future__ import annotations

import pytest

from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade import upgrade_net
from tests.proto.upgrade.upgraded import net, refusal, upgrade


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
