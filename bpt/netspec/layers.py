"""``L``: one function for each layer type. What it returns stands for the layer's tops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bpt.errors import UserError, did_you_mean
from bpt.layers import LAYERS
from bpt.netspec.assign import assign
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import field_by_name, fields_of
from bpt.proto.settings import settings_of


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
