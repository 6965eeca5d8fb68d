"""Old fields of solvers."""

from __future__ import annotations

import pytest

from bpt.errors import PrototxtError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.parse import parse_text
from bpt.proto.sources import read_solver
from bpt.proto.upgrade import upgrade_solver
from tests.proto.golden import UPGRADE


def test_as_caffe_upgrades_it() -> None:
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


def test_nothing_to_upgrade() -> None:
    text = 'type: "Adam" net_param { name: "n" }'
    parsed = parse_text(text, pb.SolverParameter)
    assert upgrade_solver(parsed.message, parsed.origins, "<string>") == []
    assert parsed.message == parse_text(text, pb.SolverParameter).message
