"""The content of a drawing: boxes with their texts and colours, and the blobs between them. No coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import Family

KINDS = tuple(family.value for family in Family)
COLOURS = dict(
    zip(
        KINDS,
        ("#E69F00", "#0072B2", "#8E5BA6", "#7A5C3E", "#009E73", "#56B4E9", "#D8C21B", "#8C8C8C", "#D55E00", "#CC79A7"),
        strict=True,
    )
)
"""Kind of layer → colour, from the palette of Okabe and Ito, which colour-blind readers can distinguish."""


def kind_of(type_name: str) -> str:
    """Return the kind of a layer, one of KINDS, which chooses its colour."""
    return (LAYERS[type_name].family if type_name in LAYERS else Family.OTHER).value


def detail_of(spec: LayerSpec, axes: int = 2) -> str:
    """Return the layer's type and its main settings, such as ``Convolution 5×5, 64, stride 2``.

    Args:
        spec: the layer.
        axes: the number of spatial axes of its top.
    """
    words = LAYERS[spec.type].in_words(spec.param, axes) if spec.type in LAYERS else ()
    return " ".join(filter(None, (spec.type, ", ".join(filter(None, words)))))


SHARES = "weights of"


@dataclass(frozen=True)
class InPlaceRow:
    """A layer that works in place on the top of its box.

    Attributes:
        text: the layer's type and settings.
        kind: one of KINDS.
    """

    text: str
    kind: str


@dataclass(frozen=True)
class Box:
    """A layer, and the layers that work in place on its top.

    Attributes:
        name: the layer's name.
        detail: its type and settings.
        kind: one of KINDS.
        rows: the layers in place.
    """

    name: str
    detail: str
    kind: str
    rows: tuple[InPlaceRow, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """A blob from the box that makes it to a box that reads it.

    Attributes:
        source: the number of the first box.
        target: the number of the second box; ``None`` if no layer reads the blob.
        blob: the blob's name.
        label: the text at the arrow.
    """

    source: int
    target: int | None
    blob: str
    label: str


@dataclass(frozen=True)
class NetDrawing:
    """The boxes in order of the text, and the arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True)
class PhaseDrawing:
    """The layers of one phase.

    Attributes:
        phase: ``"TRAIN"`` or ``"TEST"``.
        layers: the layers with their numbers in the text.
        shapes: (number of a layer, number of its top) → the top's shape, if it is known.
    """

    phase: str
    layers: tuple[tuple[int, LayerSpec], ...]
    shapes: Mapping[tuple[int, int], Shape] = field(default_factory=dict)


def drawing_of(parts: Sequence[PhaseDrawing], rates: bool = False) -> NetDrawing:
    """Return the drawing of a net in one phase, or of several phases over each other.

    A layer that works in place is a row in the box that made its blob. A layer of one phase names the phase.

    Args:
        parts: the phases.
        rates: show the multipliers of the learning rates of each layer's parameters.
    """
    phases: dict[int, list[str]] = {}
    texts: dict[int, LayerSpec] = {}
    for part in parts:
        for number, spec in part.layers:
            phases.setdefault(number, []).append(part.phase)
            texts[number] = spec
    hosts = {number: host for part in parts for number, host in _hosts(part).items()}
    box_of = {number: at for at, number in enumerate(sorted(n for n in texts if hosts[n] == n))}
    only = {number: f" ({found[0]})" if len(found) < len(parts) else "" for number, found in phases.items()}
    shared = dict(_shared(texts))
    axes = {number: max(1, len(shape) - 2) for part in parts for (number, _), shape in part.shapes.items()}
    boxes = []
    for number in box_of:
        spec = texts[number]
        words = [detail_of(spec, axes.get(number, 2))]
        if rates and spec.param.param:
            words.append("lr × " + ", ".join(f"{param.lr_mult:g}" for param in spec.param.param))
        if number in shared:
            words.append(f"{SHARES} {shared[number]}")
        rows = tuple(
            InPlaceRow(detail_of(texts[other]) + only[other], kind_of(texts[other].type))
            for other in sorted(texts)
            if hosts[other] == number and other != number
        )
        boxes.append(Box(spec.name, ", ".join(words) + only[number], kind_of(spec.type), rows))
    arrows = dict.fromkeys(arrow for part in parts for arrow in _arrows(part, hosts, box_of))
    return NetDrawing(tuple(boxes), tuple(sorted(arrows, key=lambda arrow: (arrow.source, arrow.blob))))


def in_place(spec: LayerSpec) -> bool:
    """Return whether the layer has a single bottom and writes its top in place of that bottom."""
    return len(spec.bottoms) == 1 and spec.tops == spec.bottoms


def _hosts(part: PhaseDrawing) -> dict[int, int]:
    """Return for each layer the layer whose box it is in: itself, or the one whose top it changes in place."""
    hosts: dict[int, int] = {}
    maker: dict[str, int] = {}
    for number, spec in part.layers:
        if in_place(spec) and spec.tops[0] in maker:
            hosts[number] = maker[spec.tops[0]]
            continue
        hosts[number] = number
        maker.update(dict.fromkeys(spec.tops, number))
    return hosts


def _arrows(part: PhaseDrawing, hosts: Mapping[int, int], box_of: Mapping[int, int]) -> Iterator[Arrow]:
    maker: dict[str, tuple[int, str]] = {}  # blob → box and label
    read: set[str] = set()
    for number, spec in part.layers:
        if hosts[number] != number:
            continue
        for blob in spec.bottoms:
            if blob in maker:
                source, label = maker[blob]
                read.add(blob)
                yield Arrow(source, box_of[number], blob, label)
        for top, blob in enumerate(spec.tops):
            if blob in maker and blob not in read:
                yield Arrow(maker[blob][0], None, blob, maker[blob][1])
            maker[blob] = box_of[number], label_of(blob, part.shapes.get((number, top)))
            read.discard(blob)
    for blob, (source, label) in maker.items():
        if blob not in read:
            yield Arrow(source, None, blob, label if label == blob else f"{blob}: {label}" if label else blob)


def label_of(blob: str, shape: Shape | None) -> str:
    """Return the shape without the batch, or the blob's name if a sample has one number; "" without a shape."""
    if shape is None:
        return ""
    return "×".join(map(str, shape[1:])) if len(shape) > 1 else blob


def _shared(texts: Mapping[int, LayerSpec]) -> Iterator[tuple[int, str]]:
    """Yield each layer that shares an earlier layer's weights, and the name of that layer."""
    owners: dict[str, str] = {}
    for number in sorted(texts):
        for param in texts[number].param.param:
            if param.name and owners.setdefault(param.name, texts[number].name) != texts[number].name:
                yield number, owners[param.name]
                break
