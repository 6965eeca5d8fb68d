"""A layer's case: settings, bottoms and what is special about them; and the table of types that have cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

import torch
from hypothesis import strategies as some
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers import Layer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import spaced
from tests.support.one_layer import Shape, randomise

P = ParamSpec("P")


@dataclass(frozen=True)
class Case:
    """A layer's text without its name and blobs, and float64 bottoms."""

    body: str
    bottoms: tuple[Tensor, ...]
    constant: tuple[int, ...] = ()  # bottoms that get no diff
    tops: int = 1
    phase: int = pb.TRAIN
    # Rules that do not hold of this case, each in the strategy that draws it with the reason beside it.
    shapes_by_data: bool = False  # axis 0 of the tops depends on the data
    by_batch: bool = False  # it normalises over the samples that it is given
    own_rule: bool = False  # its parameters follow a rule of their own, which is not the gradient of a top
    common: tuple[int, ...] = ()  # bottoms that are those of all samples
    listed: tuple[int, ...] = ()  # bottoms whose rows (axis 2) name their sample in column 0

    @property
    def shapes(self) -> list[Shape]:
        return [tuple(bottom.shape) for bottom in self.bottoms]

    def of(self, samples: Sequence[int]) -> list[Tensor]:
        """The bottoms of these samples."""
        return [
            bottom if index in self.common else _named(bottom, samples) if index in self.listed else bottom[samples]
            for index, bottom in enumerate(self.bottoms)
        ]

    def graph(self) -> LayerGraph:
        """A net of the layer "L" behind an Input that has its bottoms.

        Raises:
            LayerError: the settings and shapes do not go together.
        """
        names = [f"x{index}" for index in range(len(self.bottoms))]
        shapes = "".join("shape {" + "".join(f" dim: {size}" for size in shape) + " } " for shape in self.shapes)
        fed = "".join(f'top: "{name}" ' for name in names)
        text = f'layer {{ name: "in" type: "Input" {fed} input_param {{ {shapes} }} }}' if names else ""
        blobs = "".join(f'bottom: "{name}" ' for name in names)
        blobs += "".join(f'top: "y{index}" ' for index in range(self.tops))
        return graph_of(f'force_backward: true {text} layer {{ name: "L" {blobs} {self.body} }}', self.phase)

    def layer(self, context: PassContext | None = None) -> Layer:
        """The layer in float64, its parameters in [0.5, 1.5)."""
        layer = randomise(Net(self.graph(), context or PassContext(seed=7)).layers[-1]).double()  # type: ignore[arg-type]
        return layer.requires_grad_(False) if self.own_rule else layer


def _named(rows: Tensor, samples: Sequence[int]) -> Tensor:
    """The rows (1, 1, number, …) that name one of ``samples``, by its place among these; else one row of -1."""
    found = []
    for place, sample in enumerate(samples):
        own = rows[:, :, rows[0, 0, :, 0] == sample].clone()
        own[..., 0] = place
        found.append(own)
    whole = torch.cat([*found, rows[:, :, :0]], 2)
    return whole if whole.numel() else torch.full_like(rows[:, :, :1], -1)


CASES: dict[str, some.SearchStrategy[Case]] = {}


def cases(*kinds: str) -> Callable[[Callable[Concatenate[some.DrawFn, str, P], Case]], None]:
    """Enters ``draw(draw, kind)``, which draws a case of a layer type, for all of these types."""

    def enter(draw: Callable[..., Case]) -> None:
        for kind in kinds:
            assert kind not in CASES, kind
            CASES[kind] = some.composite(draw)(kind)

    return enter


def body(kind: str, group: str = "", /, **fields: object) -> str:
    """``type: "<kind>" <group> { <field>: <value> … }``; a list is a repeated field, ``None`` is left out."""
    written = " ".join(
        f"{name}: {str(one).lower() if isinstance(one, bool) else one}"
        for name, value in fields.items()
        if value is not None
        for one in (value if isinstance(value, list | tuple) else [value])
    )
    return f'type: "{kind}" {group} {{ {written} }}' if group else f'type: "{kind}"'


def filled(shapes: Sequence[Shape], scale: float = 1.0) -> tuple[Tensor, ...]:
    """Bottoms of numbers in (-2, 2) times ``scale``; those of one bottom are apart from each other and from 0."""
    return tuple(spaced(shape, seed) * scale for seed, shape in enumerate(shapes))


def positive(shape: Shape, seed: int = 0) -> Tensor:
    """Numbers in (0.3, 4.3), apart from each other."""
    return spaced(shape, seed) + 2.3
