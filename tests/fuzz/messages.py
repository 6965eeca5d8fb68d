"""Changes messages of protobuf field by field, so that they stay well-formed but mean something odd."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.config.proto.fields import fields_of, is_message, is_repeated
from bpt.config.proto.tokens import RANGES

_FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan"))
_INTEGERS = (0, 1, 2, 3, 4, 5, -1, -2, 7, 100, 1000, 65536, 2**24 + 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1)
_SMALL = (0, 1, 2, 3, 4, 5, 6, 8, -1, -2, 20)

Text = Callable[[random.Random, FieldDescriptor], str]
"""Gives a text for a field."""


class Changer:
    """Changes messages.

    Args:
        text: gives texts for fields.
        small: integers that are mostly so small that what they count can be made.
        forbidden: names of fields that stay as they are.
    """

    def __init__(self, text: Text, *, small: bool = False, forbidden: Sequence[str] = ()) -> None:
        self._text = text
        self._small = small
        self._forbidden = frozenset(forbidden)

    def change(self, rng: random.Random, message: Message, times: int = 1) -> None:
        """Change ``times`` fields somewhere in ``message``."""
        for _ in range(times):
            self._change(rng, self._descend(rng, message))

    def _descend(self, rng: random.Random, message: Message) -> Message:
        """``message`` or one in it."""
        while True:
            inner: list[Message] = []
            for field, value in message.ListFields():
                if is_message(field) and field.name not in self._forbidden:
                    inner += list(value) if is_repeated(field) else [value]
            if not inner or rng.random() < 0.2:
                return message
            message = rng.choice(inner)

    def _change(self, rng: random.Random, message: Message) -> None:
        fields = [field for field in fields_of(message) if field.name not in self._forbidden]
        set_fields = [field for field, _ in message.ListFields() if field.name not in self._forbidden]
        field = rng.choice(set_fields if set_fields and rng.random() < 0.6 else fields) if fields else None
        if field is None:
            return
        if rng.random() < 0.1:
            message.ClearField(field.name)
        elif is_repeated(field):
            self._change_list(rng, message, field)
        elif is_message(field):
            child = getattr(message, field.name)
            child.SetInParent()
            self._change(rng, child)
        else:
            setattr(message, field.name, self._value(rng, field))

    def _change_list(self, rng: random.Random, message: Message, field: FieldDescriptor) -> None:
        values: Any = getattr(message, field.name)
        kind = rng.randrange(4)
        if len(values) and kind == 0:
            del values[rng.randrange(len(values))]
        elif len(values) and kind == 1 and not is_message(field):
            values[rng.randrange(len(values))] = self._value(rng, field)
        elif len(values) and kind == 2:
            values.extend([values[rng.randrange(len(values))]] * rng.choice((1, 1, 2, 3)))
        elif is_message(field):
            self._change(rng, values.add())
        else:
            values.append(self._value(rng, field))

    def _value(self, rng: random.Random, field: FieldDescriptor) -> Any:
        if field.type in RANGES:
            lowest, highest = RANGES[field.type]
            number = rng.choice(_SMALL if self._small and rng.random() < 0.9 else _INTEGERS)
            return min(max(number, lowest), highest)
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return rng.choice(_FLOATS)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        if field.enum_type is not None:
            return rng.choice(field.enum_type.values).number
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 3, 12, 48)))
        return self._text(rng, field)
