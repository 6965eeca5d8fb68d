"""NetSpec: a table of named tops that becomes a NetParameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bpt.base.errors import UnknownNameError, UserError, did_you_mean
from bpt.caffe.netspec.function import Function, Top, net_of
from bpt.config.proto import bpt_pb2 as pb


class NetSpec:
    """A net under construction: a table from names to tops, filled by assignment.

    ``n.conv1 = L.Convolution(…)`` names the layer and its top ``conv1``. Names that are not Python identifiers go in
    brackets: ``n["conv1/relu"]``. A layer is in the net if it, or a layer that needs it, has a name here. Layers
    follow the order of assignment, each after those it reads. Blobs without a name are named after their type and a
    number, such as ``Convolution1``.
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
        if not isinstance(name, str) or not name:
            raise UserError(f"the name of a top must be a text that is not empty, not {name!r}")
        if not isinstance(value, (Top, Function)):
            advice = f"; it takes {len(value)} names" if isinstance(value, tuple) else ""
            raise UserError(f'"{name}" must be what a layer of L returns, not a {type(value).__name__}{advice}')
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.tops:
            raise UnknownNameError(f'the net has no top "{name}"', str(name), self.tops)
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
        """Return the net; ``str()`` turns it into text format."""
        return net_of(self.tops.values(), {top: name for name, top in self.tops.items()})
