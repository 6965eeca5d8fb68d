"""Function is a layer made in Python and Top is one of its outputs; ``to_proto`` writes the net that tops need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bpt.base.errors import UserError
from bpt.caffe.netspec.settings import set_in_layer
from bpt.config.proto import bpt_pb2 as pb

_MOST_TOPS = 100_000


class NotATopError(UserError, TypeError):
    """A bottom given to a layer is not the top of a layer."""


class Top:
    """Output ``n`` of the layer ``fn``, which other layers take as a bottom."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> pb.NetParameter:
        """Return the net of all layers that this top needs, with automatic names."""
        return to_proto(self)


class Function:
    """A layer without a name; ``NetSpec`` or ``to_proto`` names it.

    Args:
        type_name: its type, as in the text.
        inputs: the tops that it reads.
        ntop: how many tops it makes.
        in_place: whether its tops are its bottoms.
        settings: fields of ``LayerParameter``, or of the message that this type reads: ``num_output`` of a
            Convolution is ``convolution_param { num_output }``.

    Raises:
        NotATopError: an input that is not a Top, such as a tuple of them.
        UserError: a setting that the type does not have, or of the wrong type.
    """

    def __init__(
        self, type_name: str, inputs: tuple[object, ...], ntop: int, in_place: bool, settings: dict[str, object]
    ) -> None:
        self.type_name = type_name
        self.inputs = tuple(_as_top(type_name, index, given) for index, given in enumerate(inputs))
        if not isinstance(ntop, int) or not 0 <= ntop <= _MOST_TOPS:
            raise UserError(f"L.{type_name}: ntop must be a whole number from 0 to {_MOST_TOPS}, not {ntop!r}")
        if not isinstance(in_place, int):
            raise UserError(f"L.{type_name}: in_place must be True or False, not {in_place!r}")
        if in_place and not self.inputs:
            raise UserError(f"L.{type_name}: in_place needs a bottom to work in")
        self.in_place = in_place
        self.param = pb.LayerParameter(type=type_name)
        for name, value in settings.items():
            set_in_layer(self.param, name, value)
        self.tops = tuple(Top(self, n) for n in range(ntop))


def _as_top(type_name: str, index: int, given: object) -> Top:
    if isinstance(given, Top):
        return given
    raise NotATopError(f"{type_name} input {index} is not a Top (type is {type(given)})")  # pycaffe's words


def to_proto(*tops: Top) -> pb.NetParameter:
    """Return the net of all layers that ``tops`` need, with automatic names."""
    for index, top in enumerate(tops):
        if not isinstance(top, (Top, Function)):
            raise NotATopError(f"to_proto: {index} is not what a layer of L returns, but a {type(top).__name__}")
    return net_of(tops, {})


def net_of(ends: Iterable[Top | Function], names: Mapping[Top | Function, str]) -> pb.NetParameter:
    """Return the net of all layers that ``ends`` need.

    Tops and layers that are not in ``names`` are named after their type and a number.
    """
    namer = _Namer(names)
    layers: dict[Function, pb.LayerParameter] = {}
    for fn in _in_order(end.fn if isinstance(end, Top) else end for end in ends):
        layer = pb.LayerParameter()
        bottoms = [layers[bottom.fn].top[bottom.n] for bottom in fn.inputs]
        tops = bottoms if fn.in_place else [namer.top(top) for top in fn.tops]
        layer.name = namer.layer(fn)
        layer.bottom.extend(bottoms)
        layer.top.extend(tops)
        layer.MergeFrom(fn.param)  # may set a name of its own, and more tops and bottoms
        layers[fn] = layer
    return pb.NetParameter(layer=layers.values())


def _in_order(ends: Iterable[Function]) -> list[Function]:
    """Return ``ends`` and all functions that they need, each once and after its inputs.

    The search is a loop, because a deep net would exceed Python's recursion limit.
    """
    done: dict[Function, None] = {}
    for end in ends:
        stack = [end]
        while stack:
            missing = [bottom.fn for bottom in stack[-1].inputs if bottom.fn not in done]
            if missing:
                stack.append(missing[0])
            else:
                done[stack.pop()] = None
    return list(done)


class _Namer:
    """Names of tops and layers: the user's or, if there is none, the layer type and a number."""

    def __init__(self, names: Mapping[Top | Function, str]) -> None:
        self._names = dict(names)
        self._counts: Counter[str] = Counter()

    def top(self, top: Top) -> str:
        return self._name(top, top.fn.type_name)

    def layer(self, fn: Function) -> str:
        """Return the name of a layer, which is that of its first top."""
        return self._name(fn.tops[0] if fn.tops else fn, fn.type_name)

    def _name(self, thing: Top | Function, type_name: str) -> str:
        if thing not in self._names:
            self._counts[type_name] += 1
            self._names[thing] = f"{type_name}{self._counts[type_name]}"
        return self._names[thing]
