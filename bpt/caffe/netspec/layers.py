"""``L`` has a function for each layer type, which returns the layer's tops; ``P`` has the values of the enums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import EnumValueDescriptor

from bpt.base.errors import UserError, did_you_mean
from bpt.caffe.netspec.function import Function
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS


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

    Messages whose name does not end in "Parameter" (``P.ParamSpec.PERMISSIVE``) and enums outside of messages
    (``P.Phase.TEST``) have their full name.
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
    """Return the enum values of each message and of each enum outside of messages, by the name in ``P``."""
    known = {name: dict(enum.values_by_name) for name, enum in pb.DESCRIPTOR.enum_types_by_name.items()}
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        if message.enum_types:
            known[name.removesuffix("Parameter")] = dict(message.enum_values_by_name)
    return known


P = Parameters()


class Layers:
    """``L.<type>(*bottoms, ntop=1, in_place=False, **settings)`` makes a layer of that type.

    The function returns the layer's top, a tuple of tops if ``ntop`` is above 1, or the layer itself if ``ntop`` is 0.
    Function describes the settings.
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
