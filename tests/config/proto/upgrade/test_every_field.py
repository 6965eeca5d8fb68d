"""Each field of the formats V0 and V1 that the guide calls upgraded arrives in today's layers."""

from __future__ import annotations

from typing import Any

import pytest

from bpt.base.errors import BptError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import field_by_name, fields_of, is_message, is_repeated
from bpt.config.proto.upgrade import upgrade_net
from bpt.config.proto.upgrade.v0 import TYPES
from tests.support.caffe_table import fields_that, fork_rows

OF_FORKS = [(row.message, name) for row in fork_rows() for name in row.names if row.state == "upgraded"]
UPGRADED = [*fields_that("upgraded"), *OF_FORKS]
OF_V0 = [name for message, name in UPGRADED if message == "V0LayerParameter" and name not in ("name", "type")]
OF_V1 = [name for message, name in UPGRADED if message == "V1LayerParameter" and name.endswith("_param")]


def test_the_messages_of_v1_keep_their_names() -> None:
    assert len(OF_V1) == len([each for each in fields_of(pb.V1LayerParameter()) if each.name.endswith("_param")])
    old = pb.V1LayerParameter(name="L")
    for name in OF_V1:
        getattr(old, name).SetInParent()
    net = pb.NetParameter(layers=[old])
    upgrade_net(net, {}, None)
    assert sorted(field.name for field, _ in net.layer[0].ListFields()) == sorted(["name", *OF_V1])


def types_that_have(name: str) -> list[str]:
    """The types of V0 that a layer may have along with this field, without a note that it is ignored."""
    found = []
    for kind in TYPES:
        old = pb.V0LayerParameter(name="L", type=kind)
        put(old, name)
        net = pb.NetParameter(layers=[pb.V1LayerParameter(layer=old)])
        bare = pb.NetParameter(layers=[pb.V1LayerParameter(layer=pb.V0LayerParameter(name="L", type=kind))])
        try:
            notes = upgrade_net(net, {}, None)
        except BptError:
            continue
        upgrade_net(bare, {}, None)
        if not any(note.lossy for note in notes):
            assert net != bare
            found.append(kind)
        else:
            assert net == bare
    return found


def put(message: pb.V0LayerParameter, name: str) -> None:
    """Set the field to something that is not its default."""
    field = field_by_name(message, name)
    assert field is not None
    holder: Any = getattr(message, name)
    if is_message(field):
        holder.add() if is_repeated(field) else holder.SetInParent()
    elif is_repeated(field):
        holder.append(3)
    elif field.cpp_type == field.CPPTYPE_STRING:
        setattr(message, name, "text")
    elif field.cpp_type == field.CPPTYPE_BOOL:
        setattr(message, name, not field.default_value)
    else:
        setattr(message, name, 2)


@pytest.mark.parametrize("name", OF_V0)
def test_a_field_of_v0_arrives(name: str) -> None:
    assert types_that_have(name)


@pytest.mark.parametrize("name", [name for message, name in fields_that("no effect") if message == "V0LayerParameter"])
def test_others_are_noted_for_every_type(name: str) -> None:
    assert types_that_have(name) == []
