"""Old fields are read as the new ones."""

from __future__ import annotations

import pytest

from bpt.errors import PrototxtError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.parse import parse_text
from bpt.proto.solver import read_net, read_solver
from bpt.proto.upgrade import upgrade_net, upgrade_solver
from tests.proto.golden import UPGRADE


def upgraded(text: str) -> pb.NetParameter:
    parsed = parse_text(text, pb.NetParameter, "n.prototxt")
    upgrade_net(parsed.message, parsed.origins, "n.prototxt")
    return parsed.message


def input_layer(*shapes: list[int], tops: str) -> pb.LayerParameter:
    layer = pb.LayerParameter(name="input", type="Input", top=tops.split())
    for shape in shapes:
        layer.input_param.shape.add(dim=shape)
    return layer


def test_solver_as_caffe_upgrades_it() -> None:
    expected = parse_text((UPGRADE / "solver_v1.upgraded.prototxt").read_text(), pb.SolverParameter).message
    source = read_solver(UPGRADE / "solver_v1.prototxt")
    source.param.ClearField("snapshot_prefix")
    assert source.param == expected
    assert source.origin("type").line == 2
    assert source.notes[0].endswith('solver_v1.prototxt:2:1: the old field "solver_type" is read as type: "RMSProp"')


def test_solver_with_both_types() -> None:
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
def test_every_old_solver_type(old: str, new: str) -> None:
    param = pb.SolverParameter(solver_type=old)
    upgrade_solver(param, {}, "s.prototxt")
    assert param == pb.SolverParameter(type=new)


def test_net_as_caffe_upgrades_it() -> None:
    expected = parse_text((UPGRADE / "v2_inputfields_bn.upgraded.prototxt").read_text(), pb.NetParameter).message
    net = read_net(UPGRADE / "v2_inputfields_bn.prototxt").param
    for spec in expected.layer[1].param:  # Caffe also writes out what BatchNorm ignores anyway
        spec.ClearField("decay_mult")
    assert net == expected


def test_input_dim() -> None:
    net = upgraded('input: "a" input: "b" input_dim: [1,2,3,4, 5,6,7,8] layer { name: "x" }')
    assert list(net.layer) == [
        input_layer([1, 2, 3, 4], [5, 6, 7, 8], tops="a b"),
        pb.LayerParameter(name="x"),
    ]
    assert not (net.input or net.input_dim)


def test_input_shape_goes_before_input_dim() -> None:
    net = upgraded('input: "a" input_shape { dim: [7, 8] } input_dim: 3')
    assert list(net.layer) == [input_layer([7, 8], tops="a")]


def test_origins_follow_the_layers() -> None:
    parsed = parse_text('input: "a"\ninput_shape {}\nlayer {}\nlayer { type: "b" }', pb.NetParameter)
    notes = upgrade_net(parsed.message, parsed.origins, "<string>")
    assert parsed.origin("layer", 0).line == 1
    assert parsed.origin("layer", 1).line == 3
    assert parsed.origin("layer", 2).line == 4
    assert parsed.origin("layer", 2, "type").column == 9
    assert notes == ['<string>:1:1: the old field "input" is read as a layer of type Input']


def test_nothing_to_upgrade() -> None:
    text = 'name: "n" layer { name: "a" }'
    assert upgraded(text) == parse_text(text, pb.NetParameter).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('input: "a"\ninput_dim: [1,2,3]', '1:1: 1 "input" need 4 "input_dim", not 3'),
        ('input: "a"\ninput: "b" input_shape {}', '1:1: 2 "input" need as many "input_shape", not 1'),
        ('input: "a"', '1:1: 1 "input" need 4 "input_dim", not 0'),
        ('name: "n" input_dim: 3', '1:11: 0 "input" need 0 "input_dim", not 1'),
        ("input_shape {}", '1:1: 0 "input" need as many "input_shape", not 1'),
        ('name: "n"\nlayers {}', '2:1: uses the old "layers" format (V1); upgrading it is not supported yet'),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        upgraded(text)
    assert str(caught.value) == f"n.prototxt:{message}"


@pytest.mark.parametrize("name", ["v0_net", "v0_deploy", "v1_deploy", "v1_train_val"])
def test_old_layers_are_refused(name: str) -> None:
    with pytest.raises(PrototxtError, match='uses the old "layers" format'):
        read_net(UPGRADE / f"{name}.prototxt")


def test_nets_inside_a_solver_are_upgraded() -> None:
    lines = (
        'net_param { input: "a" input_shape { dim: 1 } }',
        "test_net_param {}",
        'test_net_param { input: "b" input_shape {} }',
    )
    parsed = parse_text("\n".join(lines), pb.SolverParameter)
    upgrade_solver(parsed.message, parsed.origins, "<string>")
    assert list(parsed.message.net_param.layer) == [input_layer([1], tops="a")]
    assert parsed.message.test_net_param[1].layer[0].type == "Input"
    assert parsed.origin("test_net_param", 1, "layer", 0).line == 3
