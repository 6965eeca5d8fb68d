"""``L``: one function for each layer type; what it returns stands for the layer's tops. ``P``: the enums' values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import EnumValueDescriptor, FieldDescriptor
from google.protobuf.message import Message

from bpt.errors import UserError, did_you_mean
from bpt.layers import LAYERS
from bpt.layers.layer_text import settings_of
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import field_by_name, fields_of, is_message, is_repeated
from bpt.proto.tokens import BadValueError, to_enum


class Enums:
    """The enum values of one message, as attributes: ``P.Pooling.MAX`` is 0."""

    def __init__(self, name: str, values: dict[str, EnumValueDescriptor]) -> None:
        self._name = name
        self._values = values

    def __getattr__(self, value: str) -> int:
        if value.startswith("_"):
            raise AttributeError(value)
        if value not in self._values:
            hint = did_you_mean(value, self._values) or f" (it has {', '.join(self._values)})"
            raise UserError(f'P.{self._name} has no value "{value}"{hint}')
        return int(self._values[value].number)

    def __dir__(self) -> list[str]:
        return list(self._values)


class Parameters:
    """``P.<name>`` holds the enum values of the message ``<name>Parameter``: ``P.Eltwise.SUM``, ``P.Data.LMDB``.

    Messages of other names (``P.ParamSpec.PERMISSIVE``) and enums outside of messages (``P.Phase.TEST``) go by
    their full name.
    """

    def __getattr__(self, name: str) -> Enums:
        if name.startswith("_"):
            raise AttributeError(name)
        known = _with_enums()
        if name not in known:
            raise UserError(f'no message of the schema called "{name}" has enum values{did_you_mean(name, known)}')
        return Enums(name, known[name])

    def __dir__(self) -> list[str]:
        return list(_with_enums())


def _with_enums() -> dict[str, dict[str, EnumValueDescriptor]]:
    """Everything that has enum values, by the name it has in ``P``."""
    known = {name: dict(enum.values_by_name) for name, enum in pb.DESCRIPTOR.enum_types_by_name.items()}
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        if message.enum_types:
            known[name.removesuffix("Parameter")] = dict(message.enum_values_by_name)
    return known


P = Parameters()


def assign(message: Message, name: str, value: object, where: str) -> None:
    """Set field ``name`` of ``message``.

    A dict sets the fields of a message, a list or tuple the elements of a repeated field; a repeated field takes a
    single value as a list of one. Enums go by number (``P.Pooling.MAX``) or by name (``"MAX"``).

    Args:
        where: what the user called, for messages: ``L.Convolution``.

    Raises:
        UserError: unknown field, or a value that does not fit.
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
        child.SetInParent()  # there even if the dict is empty
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
    """``value`` as the field takes it: enums by number, everything else as it is."""
    if field.enum_type is not None and isinstance(value, str):
        return to_enum(value, field.enum_type)
    return value


def _misfit(value: object, where: str, error: Exception) -> UserError:
    if isinstance(error, BadValueError):
        return UserError(f"{where} takes {error.takes}, given {value!r}{error.hint}")
    return UserError(f"{where} does not take {value!r}: {error}")


class Top:
    """Output ``n`` of the layer ``fn``: what other layers take as a bottom."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n


class Function:
    """One layer, still without names.

    Args:
        type_name: its type, as in the text.
        inputs: the tops that it reads.
        ntop: how many tops it makes.
        in_place: whether its tops are its bottoms.
        settings: fields of ``LayerParameter``, or of the message that this type reads: ``num_output`` of a
            Convolution is ``convolution_param { num_output }``.

    Raises:
        UserError: an input that is not a Top; a setting that the type does not have, or of the wrong type.
    """

    def __init__(
        self, type_name: str, inputs: tuple[object, ...], ntop: int, in_place: bool, settings: dict[str, object]
    ) -> None:
        self.type_name = type_name
        self.inputs = tuple(_as_top(type_name, index, given) for index, given in enumerate(inputs))
        if in_place and not self.inputs:
            raise UserError(f"L.{type_name}: in_place needs a bottom to work in")
        self.in_place = in_place
        self.param = pb.LayerParameter(type=type_name)
        for name, value in settings.items():
            _set(self.param, name, value)
        self.tops = tuple(Top(self, n) for n in range(ntop))


def _as_top(type_name: str, index: int, given: object) -> Top:
    if isinstance(given, Top):
        return given
    kind = type(given).__name__
    advice = "; unpack it" if isinstance(given, tuple) else ""
    raise UserError(f"L.{type_name}: bottom {index} must be a top of another layer, not a {kind}{advice}")


def _set(param: pb.LayerParameter, name: str, value: object) -> None:
    """Set ``name`` where it belongs: in the type's own message if that has it, else in the layer."""
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


class Layers:
    """``L.<type>(*bottoms, ntop=1, in_place=False, **settings)`` makes a layer of that type.

    Returns its top, or a tuple of them if ``ntop`` is above 1, or, if it is 0, the layer itself. See Function for
    the settings.
    """

    def __getattr__(self, type_name: str) -> Callable[..., Any]:
        if type_name.startswith("_"):
            raise AttributeError(type_name)
        LAYERS[type_name]  # a UserError that names the nearest type, if it is unknown

        def make(*bottoms: object, ntop: int = 1, in_place: bool = False, **settings: object) -> Any:
            fn = Function(type_name, bottoms, ntop, in_place, settings)
            if ntop == 0:
                return fn
            return fn.tops[0] if ntop == 1 else fn.tops

        return make

    def __dir__(self) -> list[str]:
        return list(LAYERS)


L = Layers()
