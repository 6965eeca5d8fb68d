"""NetSpec: names for tops, and from there to a NetParameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bpt.errors import UserError, did_you_mean
from bpt.netspec.layers import Function, Top
from bpt.proto import bpt_pb2 as pb


class NetSpec:
    """A net under construction: a table from names to tops, filled by assignment.

    ``n.conv1 = L.Convolution(…)`` calls the layer and its top ``conv1``; names that are no Python words go in
    brackets: ``n["conv1/relu"]``. A layer is in the net if it, or a layer that needs it, has a name here;
    layers stand in the order of assignment, each after those it reads. Blobs without a name are called after
    their type and numbered, ``Convolution1``.
    """

    tops: dict[str, Top | Function]

    def __init__(self) -> None:
        object.__setattr__(self, "tops", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self.tops[name]
        except KeyError:
            raise AttributeError(f'the net has no top "{name}"{did_you_mean(name, self.tops)}') from None

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(value, (Top, Function)):
            advice = f"; it takes {len(value)} names" if isinstance(value, tuple) else ""
            raise UserError(f'"{name}" must be what a layer of L returns, not a {type(value).__name__}{advice}')
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tops

    def __iter__(self) -> Iterator[str]:
        return iter(self.tops)

    def __len__(self) -> int:
        return len(self.tops)

    def to_proto(self) -> pb.NetParameter:
        """The net. ``str()`` of it is its text."""
        return _to_proto(self.tops.values(), {top: name for name, top in self.tops.items()})


def to_proto(*tops: Top) -> pb.NetParameter:
    """The net of all layers that ``tops`` need, all names automatic."""
    return _to_proto(tops, {})


def _to_proto(ends: Iterable[Top | Function], names: Mapping[Top | Function, str]) -> pb.NetParameter:
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
    """``ends`` and all that they need, each once and after its inputs. (A loop, because nets are deep.)"""
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
    """Gives names: the user's, or automatic ones, numbered by layer type."""

    def __init__(self, names: Mapping[Top | Function, str]) -> None:
        self._names = dict(names)
        self._counts: Counter[str] = Counter()

    def top(self, top: Top) -> str:
        return self._name(top, top.fn.type_name)

    def layer(self, fn: Function) -> str:
        """A layer is called like its first top."""
        return self._name(fn.tops[0] if fn.tops else fn, fn.type_name)

    def _name(self, thing: Top | Function, type_name: str) -> str:
        if thing not in self._names:
            self._counts[type_name] += 1
            self._names[thing] = f"{type_name}{self._counts[type_name]}"
        return self._names[thing]
