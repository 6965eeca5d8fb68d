"""Writes layer settings that are Python values into the layer's messages."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.base.errors import UserError, did_you_mean
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import field_by_name, fields_of, is_message, is_repeated
from bpt.config.proto.tokens import BadValueError, to_enum
from bpt.nn.layers.layer_text import settings_of


def set_in_layer(param: pb.LayerParameter, name: str, value: object) -> None:
    """Set the field ``name`` in the message of the layer's type if that has the field, else in the layer."""
    where = f"L.{param.type}"
    own = settings_of(param.type)
    settings = getattr(param, own) if own else None
    if settings is not None and not name.endswith("param") and field_by_name(settings, name):
        assign(settings, name, value, where)
    elif field_by_name(param, name):
        assign(param, name, value, where)
    else:
        known = [field.name for field in fields_of(settings)] if settings is not None else []
        hint = did_you_mean(name, [*known, *(field.name for field in fields_of(param))])
        if not hint and known:
            hint = f" ({own} has {', '.join(known)})"
        raise UserError(f'{where}: unknown setting "{name}"{hint}')


def assign(message: Message, name: str, value: object, where: str) -> None:
    """Set field ``name`` of ``message``.

    A dict sets the fields of a message, and a list or tuple sets the elements of a repeated field. A repeated field
    also takes a single value. An enum takes a number (``P.Pooling.MAX``) or a name (``"MAX"``).

    Args:
        where: the user's call, for error messages: ``L.Convolution``.

    Raises:
        UserError: the field is unknown, or the value does not fit.
    """
    field = field_by_name(message, name)
    if field is None:
        hint = did_you_mean(name, message.DESCRIPTOR.fields_by_name)
        raise UserError(f'{where}: {message.DESCRIPTOR.name} has no field "{name}"{hint}')
    where = f"{where}: {name}"
    if is_repeated(field):
        for element in value if isinstance(value, (list, tuple)) else [value]:
            _append(message, field, element, where)
    elif is_message(field):
        child = getattr(message, name)
        child.SetInParent()  # an empty dict sets the message, too
        _fill(child, value, where)
    else:
        try:
            setattr(message, name, _plain(field, value))
        except (TypeError, ValueError) as error:
            raise _misfit(value, where, error) from None


def _append(message: Message, field: FieldDescriptor, element: object, where: str) -> None:
    elements = getattr(message, field.name)
    if is_message(field):
        _fill(elements.add(), element, where)
        return
    try:
        elements.append(_plain(field, element))
    except (TypeError, ValueError) as error:
        raise _misfit(element, where, error) from None


def _fill(message: Message, value: object, where: str) -> None:
    if not isinstance(value, Mapping):
        raise UserError(f"{where} takes a dict of the fields of {message.DESCRIPTOR.name}, given {value!r}")
    for name, inner in value.items():
        assign(message, name, inner, where)


def _plain(field: FieldDescriptor, value: object) -> object:
    """Return the number of an enum value that is given by name, and any other value unchanged."""
    if field.enum_type is not None and isinstance(value, str):
        return to_enum(value, field.enum_type)
    return value


def _misfit(value: object, where: str, error: Exception) -> UserError:
    if isinstance(error, BadValueError):
        return UserError(f"{where} takes {error.takes}, given {value!r}{error.hint}")
    return UserError(f"{where} does not take {value!r}: {error}")
