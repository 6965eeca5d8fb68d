"""Hints for texts that mix today's format of layers, ``layer``, with that of 2014, ``layers``."""

from __future__ import annotations

from google.protobuf.message import Message

from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade.v1 import PARAM_FIELDS, TYPES

_CAPITALS = {pb.V1LayerParameter.LayerType.Name(old): today for old, today in TYPES.items()}
_TODAYS = {today: old for old, today in _CAPITALS.items() if today}


def type_today(old: str) -> str:
    """``"SoftmaxWithLoss"`` for ``"SOFTMAX_LOSS"``; ``""`` if that is no type of the old format."""
    return _CAPITALS.get(old, "")


def value_hint(message: Message, field: str, text: str) -> str:
    """How to write the value ``text``, which does not fit ``field``, if it is the other format's; else ``""``."""
    written = text.strip("\"'")
    if field != "type":
        return ""
    if isinstance(message, pb.LayerParameter) and type_today(written):
        return f'; write "{type_today(written)}", or, for the old format, "layers" instead of "layer"'
    if isinstance(message, pb.V1LayerParameter) and text != written and written in _TODAYS:
        return f'; in "layers", the old format, it is {_TODAYS[written]}; today\'s format is "layer"'
    return ""


def field_hint(message: Message, field: str) -> str:
    """What ``field``, which is not written like that in ``message``, is there, if it is the other format's."""
    if isinstance(message, pb.LayerParameter) and field in PARAM_FIELDS:
        return f'; it is of the old format, "layers"; in "layer" write param {{ {PARAM_FIELDS[field]} }}'
    if isinstance(message, pb.V1LayerParameter) and field == "param":
        return (
            '; in "layers", the old format, lr_mult and decay_mult are blobs_lr and weight_decay; '
            'write "layer" for param { … }'
        )
    return ""
