"""Graphs from text, and layer types that stand in for real ones: a graph needs no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bpt.base.errors import LayerError
from bpt.base.registry import Registry
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import parse_text
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import (
    Arity,
    Autocast,
    FileKind,
    LayerShapes,
    LayerSpec,
    LayerType,
    LayerTypes,
    ParamSpec,
    Shape,
)
from bpt.graph.layer_specs import layer_specs

ONE_TO_ONE = Arity()


@dataclass(eq=False)
class StandIn:
    """A layer type whose tops have the shape of its first bottom, or ``top`` if that is given."""

    arity: Arity = ONE_TO_ONE
    is_loss: bool = False
    elementwise: bool = False
    is_view: bool = False
    multiplies: bool = False
    top: Shape | None = None
    params: tuple[ParamSpec, ...] = ()
    files: tuple[tuple[str, FileKind], ...] = ()

    def infer(self, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shape = bottoms[0] if self.top is None else self.top
        return LayerShapes((shape,) * max(len(spec.tops), self.arity.tops[0]), self.params)

    def flops(self, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 0

    def saved_for_backward(self, spec: LayerSpec) -> float:
        return 1.0

    def autocast(self, spec: LayerSpec) -> Autocast:
        return Autocast.FULL

    def gives_constants(self, spec: LayerSpec) -> bool:
        return False

    def allow_force_backward(self, bottom: int) -> bool:
        return not (self.is_loss and bottom == 1)


WEIGHT = ParamSpec((3, 2), pb.FillerParameter())
TYPES: dict[str, LayerType] = {
    "Source": StandIn(Arity(bottoms=(0, 0), tops=(1, None)), top=(4, 2)),
    "Neuron": StandIn(),
    "Learner": StandIn(params=(WEIGHT, ParamSpec((3,), pb.FillerParameter()))),
    "Wide": StandIn(params=(ParamSpec((2, 3), pb.FillerParameter()),)),
    "Statistics": StandIn(params=(ParamSpec((2,), pb.FillerParameter(), learnable=False),)),
    "Join": StandIn(Arity(bottoms=(2, None))),
    "Pairs": StandIn(Arity(bottoms=(1, None), tops=(1, None), as_many_tops_as_bottoms=True)),
    "Split": StandIn(Arity(tops=(1, None))),
    "Sink": StandIn(Arity(bottoms=(1, None), tops=(0, 0))),
    "Loss": StandIn(Arity(bottoms=(2, 2), auto_tops=True), is_loss=True, top=()),
}


def registry(**more: LayerType) -> Registry[LayerType]:
    """``TYPES``, some of them replaced, as a registry that explains unknown names."""
    types: Registry[LayerType] = Registry("layer type")
    for name, layer_type in (TYPES | more).items():
        types.register(name)(layer_type)
    return types


def specs_of(text: str, path: str = "net.prototxt") -> tuple[LayerSpec, ...]:
    """The layers of ``text``, which know where they stand."""
    parsed = parse_text(text, pb.NetParameter, path)
    return layer_specs(parsed.message, parsed.origins)


def build(text: str, phase: int = pb.TRAIN, types: LayerTypes | None = None, **kwargs: Any) -> LayerGraph:
    """The graph of ``text``, made of stand-ins unless other ``types`` are given."""
    return build_graph("net", specs_of(text), types or registry(), make_state(phase), **kwargs)


def error_of(text: str, types: LayerTypes | None = None) -> str:
    """The message of the LayerError that building ``text`` raises."""
    with pytest.raises(LayerError) as caught:
        build(text, types=types)
    return str(caught.value)


def unmarked(text: str) -> tuple[str, str]:
    """``text`` without its mark, and the mark's place as messages show it."""
    before = text[: text.index("§")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return text.replace("§", ""), f"net.prototxt:{line}:{column}"
