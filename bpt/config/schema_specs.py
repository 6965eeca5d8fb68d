"""Specs: frozen dataclasses that hold what messages of the schema say.

A field whose default is ``SCHEMA`` has the default of the schema's field of the same name, so that a default is written
once, in ``bpt.proto``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from google.protobuf.message import Message

T = TypeVar("T")

SCHEMA: Any = object()
SPECS: dict[str, type[Any]] = {}
"""Message of the schema → what it becomes. The other messages of a solver are texts of nets, and stay."""


def spec_of(message: type[Message]) -> Callable[[type[T]], type[T]]:
    """Decorate the spec of ``message``, below ``@dataclass``: replace each SCHEMA by the default of its field."""

    def fill_defaults(kind: type[T]) -> type[T]:
        empty = message()
        for name in [name for name, value in vars(kind).items() if value is SCHEMA]:
            setattr(kind, name, _value(getattr(empty, name)))
        SPECS.setdefault(message.DESCRIPTOR.name, kind)
        return kind

    return fill_defaults


def fill_spec(kind: type[T], message: Message, **others: object) -> T:
    """Return a ``kind`` with the fields of ``message`` of the same names, except for ``others``."""
    known = message.DESCRIPTOR.fields_by_name
    names = [field.name for field in fields(kind) if field.name in known and field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: _value(getattr(message, name)) for name in names}, **others)


def _value(value: Any) -> Any:
    """Return the value of a message's field as a spec has it: nothing in it can change."""
    if isinstance(value, Message):
        kind = SPECS.get(value.DESCRIPTOR.name)
        return value if kind is None else fill_spec(kind, value)
    return value if isinstance(value, (str, int, float)) else tuple(map(_value, value))
