"""From layer texts to a LayerGraph: filter, split, connect, infer shapes (the work of Caffe's ``Net::Init``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bpt.base.errors import LayerError, UnknownNameError, UserError, did_you_mean
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.config.proto.fields import non_finite_fields, non_finite_message
from bpt.config.proto.parse import SETTINGS, type_today, unknown_settings
from bpt.graph.backward import mark_backward
from bpt.graph.layer_graph import AUTOMATIC, Edge, LayerGraph, LayerNode
from bpt.graph.layer_spec import LayerShapes, LayerSpec, LayerType, LayerTypes, Shape, check_arity
from bpt.graph.left_out import explain_left_out
from bpt.graph.sharing import place_params
from bpt.graph.splits import insert_splits
from bpt.graph.state import filter_layers

_MOST_AXES = 32  # as in Caffe


def build_graph(
    name: str,
    layers: Sequence[LayerSpec],
    types: LayerTypes,
    state: pb.NetState,
    *,
    force_backward: bool = False,
    debug_info: bool = False,
    input_shapes: Mapping[str, Shape] | None = None,
    source: str | None = None,
) -> LayerGraph:
    """Build the graph of the layers that ``state`` admits.

    Args:
        name: the net's name.
        layers: all layers of the text, in order.
        types: the layer types; ``types[name]`` raises a UserError if the name is unknown.
        state: phase, level and stages.
        force_backward: the net's field of this name.
        input_shapes: shapes that replace those of Input layers' tops, by blob name.
        debug_info: the net's field of this name.
        source: path of the text, for messages.

    Raises:
        LayerError: a type or bottom is unknown, the number of bottoms or tops is wrong, two layers make a top, or
            shapes do not fit. It names the layer, and its place in the text if that is known.
    """
    admitted = filter_layers(layers, state)

    def explain(spec: LayerSpec, blob: str) -> str:
        return explain_left_out(blob, layers[: layers.index(spec)], state)

    drafts, edges = _connect(insert_splits(admitted, explain), types, state.phase, input_shapes or {})
    _check_names(drafts)
    specs = [draft.spec for draft in drafts]
    params = place_params(specs, [draft.shapes.params for draft in drafts])
    learns = {param.layer for param in params if param.lr_mult != 0}
    marks = mark_backward(
        specs,
        [draft.bottoms for draft in drafts],
        [draft.tops for draft in drafts],
        [index in learns for index in range(len(drafts))],
        [edge.loss_weight for edge in edges],
        force_backward,
        [draft.type.allow_force_backward for draft in drafts],
    )
    if state.phase == pb.TRAIN and not force_backward:
        for draft, mark in zip(drafts, marks, strict=True):
            if draft.shapes.forward_only and any(mark.bottoms):
                raise _cannot_train(draft, mark.bottoms)
    nodes = tuple(
        LayerNode(
            index=index,
            spec=draft.spec,
            bottoms=tuple(draft.bottoms),
            tops=tuple(draft.tops),
            params=tuple(param.index for param in params if param.layer == index),
            flops=draft.type.flops(draft.spec, [edges[e].shape for e in draft.bottoms], draft.shapes.tops),
            needs_backward=mark.layer,
            bottom_needs_diff=tuple(mark.bottoms),
            layer_type=draft.type,
        )
        for index, (draft, mark) in enumerate(zip(drafts, marks, strict=True))
    )
    return LayerGraph(name, state.phase, nodes, tuple(edges), params, force_backward, debug_info, source)


def _cannot_train(draft: _Draft, wanted: Sequence[bool]) -> LayerError:
    blobs = [f'"{blob}"' for blob, wants in zip(draft.spec.bottom_names, wanted, strict=True) if wants]
    return draft.spec.error(
        f"{draft.shapes.forward_only}, but the layers that make bottom {' and '.join(blobs)} learn through it; write "
        "one, or set propagate_down: false",
        "type",
    )


@dataclass
class _Draft:
    """A layer before it becomes a LayerNode."""

    spec: LayerSpec
    type: LayerType
    bottoms: list[int]
    tops: list[int] = field(default_factory=list)
    shapes: LayerShapes = field(default_factory=lambda: LayerShapes(()))


def _check_names(drafts: Sequence[_Draft]) -> None:
    # Weights are found by layer name. Caffe silently uses the last of two layers with the same name.
    seen: dict[str, _Draft] = {}
    for draft in drafts:
        before = seen.setdefault(draft.spec.name, draft)
        if before is not draft and (draft.shapes.params or before.shapes.params):
            place = before.spec.origin()
            raise draft.spec.error(
                f"another layer has the same name{f' ({place})' if place else ''}, so the names of their parameters "
                "would be equal; rename one of them",
                "name",
            )


def _connect(
    specs: Sequence[LayerSpec], types: LayerTypes, phase: int, input_shapes: Mapping[str, Shape]
) -> tuple[list[_Draft], list[Edge]]:
    """Draw the edges in order of execution, and infer each layer's shapes from what it reads."""
    drafts: list[_Draft] = []
    edges: list[Edge] = []
    latest: dict[str, int] = {}
    for index, spec in enumerate(specs):
        spec = _with_phase(spec, phase)
        layer_type = _type_of(spec, types)
        _check_settings(spec)
        check_arity(spec, layer_type.arity)
        draft = _Draft(spec, layer_type, [latest[blob] for blob in spec.bottoms])
        for edge in draft.bottoms:
            edges[edge] = _replace_consumer(edges[edge], index)
        named: set[str] = set()
        for position, blob in enumerate(spec.tops):
            if blob in named:
                raise spec.error(f'top "{blob}" is named twice', "top", position)
            named.add(blob)
            if blob in latest and spec.bottoms[position : position + 1] != (blob,):
                raise _made_before(spec, position, specs[edges[latest[blob]].producer])
        draft.shapes = infer(spec, layer_type, [edges[edge].shape for edge in draft.bottoms])
        names = list(spec.tops) + [AUTOMATIC] * (len(draft.shapes.tops) - len(spec.tops))
        weights = _loss_weights(spec, layer_type, len(names))
        is_input = spec.type == "Input"
        for blob, shape, weight in zip(names, draft.shapes.tops, weights, strict=True):
            if is_input:
                shape = input_shapes.get(blob, shape)
            draft.tops.append(len(edges))
            latest[blob] = len(edges)
            edges.append(Edge(len(edges), blob, shape, index, None, weight))
        drafts.append(draft)
    return drafts, edges


def _made_before(spec: LayerSpec, top: int, maker: LayerSpec) -> LayerError:
    blob = spec.tops[top]
    if spec.bottom_names[top : top + 1] == (blob,):
        return spec.error(
            f'cannot work in place on "{blob}", because other layers read what layer "{maker.name}" wrote there; '
            "give the top a name of its own",
            "top",
            top,
        )
    return spec.error(f'top "{blob}" is already made by layer "{maker.name}"', "top", top)


def _replace_consumer(edge: Edge, consumer: int) -> Edge:
    assert edge.consumer is None, "insert_splits leaves one reader an edge"
    return Edge(edge.index, edge.blob, edge.shape, edge.producer, consumer, edge.loss_weight)


def _type_of(spec: LayerSpec, types: LayerTypes) -> LayerType:
    if not spec.type:
        raise spec.error("needs a type", "type")
    try:
        return types[spec.type]
    except UnknownNameError as error:
        raise spec.error(f"{error}{'' if error.is_slip else _instead(spec.type)}", "type") from None
    except UserError as error:
        raise spec.error(str(error), "type") from None


def _check_settings(spec: LayerSpec) -> None:
    """Refuse unknown settings, which the parser skipped, unsupported ones of forks, and numbers that are not finite."""
    for unknown in unknown_settings(spec.origins):
        names = spec.param.DESCRIPTOR.fields_by_name
        known = [name.removesuffix(SETTINGS) for name in names if name.endswith(SETTINGS)]
        hint = did_you_mean(unknown.removesuffix(SETTINGS), known, closely=True).replace('"?', f'{SETTINGS}"?')
        raise spec.error(f'there are no settings "{unknown}"{hint}', unknown)
    for way, number in non_finite_fields(spec.param):
        raise spec.error(non_finite_message(way, number), *way)
    for where, words in fork_fields.refused(spec.param):
        raise spec.error(words, *where)


def _instead(unknown: str) -> str:
    """Return what to write instead of an unknown type that is no typing slip."""
    today = type_today(unknown)
    if today:
        return f'; "{unknown}" belongs to the old format, "layers"; write "{today}"'
    return "; a type that bpt does not have can be written as a Python layer (docs/python_layers.md)"


def _with_phase(spec: LayerSpec, phase: int) -> LayerSpec:
    """Return the layer with its own phase or, if it has none, with the net's."""
    if spec.param.HasField("phase"):
        return spec
    param = pb.LayerParameter()
    param.CopyFrom(spec.param)
    param.phase = phase  # type: ignore[assignment]
    return replace(spec, param=param)


def infer(spec: LayerSpec, layer_type: LayerType, bottoms: Sequence[Shape]) -> LayerShapes:
    """Return the shapes that the layer makes of bottoms of these shapes.

    Raises:
        LayerError: the layer cannot work on them.
    """
    try:
        shapes = layer_type.infer(spec, bottoms)
    except LayerError:
        raise
    except UserError as error:
        raise spec.error(str(error)) from None
    for shape in (*shapes.tops, *(param.shape for param in shapes.params)):
        if len(shape) > _MOST_AXES:
            raise spec.error(f"a blob of {len(shape)} axes; it can have at most {_MOST_AXES}")
        if any(extent < 0 for extent in shape):
            cause = f"bottoms {_show(bottoms)} are too small: they" if bottoms else "the text"
            raise spec.error(f"{cause} would give a blob of shape {shape}")
    if len(shapes.tops) < len(spec.tops):
        made = "1 top" if len(shapes.tops) == 1 else f"{len(shapes.tops)} tops"
        raise spec.error(f"{spec.type} makes {made}, but the text names {len(spec.tops)}", "top")
    return shapes


def _show(shapes: Sequence[Shape]) -> str:
    return ", ".join(str(shape) for shape in shapes)


def _loss_weights(spec: LayerSpec, layer_type: LayerType, tops: int) -> list[float]:
    given = list(spec.param.loss_weight)
    if given:
        if len(given) > tops or (len(given) < tops and len(given) != len(spec.tops)):
            raise spec.error(f"loss_weight must be given once a top ({tops}), not {len(given)} times", "loss_weight")
        return given + [0.0] * (tops - len(given))
    return [1.0 if layer_type.is_loss and top == 0 else 0.0 for top in range(tops)]
