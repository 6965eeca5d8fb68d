"""V1 layers."""

from __future__ import annotations

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.upgrade.v1 import TYPES
from tests.config.proto.upgrade.upgraded import net, upgrade


def test_every_type() -> None:
    types = {int(number): name for number, name in TYPES.items()}
    for value in pb.V1LayerParameter.LayerType.DESCRIPTOR.values:
        parsed, _ = upgrade(f"layers {{ type: {value.name} }}")
        assert parsed.message == net(f'layer {{ type: "{types[value.number]}" }}')
        # The new name is the old one without its underscores, but for two.
        others = {"SOFTMAX_LOSS": "softmaxwithloss", "NONE": ""}
        assert types[value.number].lower() == others.get(value.name, value.name.replace("_", "").lower())


def test_settings_of_parameters() -> None:
    parsed, _ = upgrade('layers {\nparam: "w"\nblob_share_mode: PERMISSIVE\nblobs_lr: [1,\n2]\nweight_decay: 3 }')
    assert parsed.message == net(
        'layer { param { name: "w" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 3 } param { lr_mult: 2 } }'
    )
    where = (("name", 0, 2), ("share_mode", 0, 3), ("lr_mult", 0, 4), ("lr_mult", 1, 5), ("decay_mult", 0, 6))
    for field, index, line in where:
        assert parsed.origin("layer", 0, "param", index, field).line == line
    assert parsed.origin("layer", 0, "param", 1, "name").line == 5
    assert parsed.origin("layer", 0, "param").line == 2


def test_all_else_keeps_its_name() -> None:
    """Every field of V1 that today's layers have too."""
    special = {"type", "param", "blob_share_mode", "blobs_lr", "weight_decay", "layer"}
    old, expected = pb.V1LayerParameter(), pb.LayerParameter()
    for field in old.DESCRIPTOR.fields:
        if field.name in special:
            continue
        for message in (old, expected):
            value = getattr(message, field.name)
            if field.name in ("bottom", "top"):
                value.extend(["a", "b"])
            elif field.name == "loss_weight":
                value.extend([1, 2])
            elif field.name in ("include", "exclude"):
                value.add(stage=["s"])
            elif field.name == "blobs":
                value.add(num=1, channels=2, height=3, width=4, data=[1, 2])
            elif field.name == "name":
                message.name = "n"
            else:
                value.SetInParent()
    old_net = pb.NetParameter(layers=[old])
    from_text, _ = upgrade(str(old_net))
    assert list(from_text.message.layer) == [expected]
    assert len(expected.ListFields()) == len(old.DESCRIPTOR.fields) - len(special)
