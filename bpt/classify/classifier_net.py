"""A net of images or scans in the shape that classifies: one input, and class scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bpt.errors import LayerError, UserError
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.source import layer_specs
from bpt.graph.spec import LayerSpec, Shape, count
from bpt.graph.state import filter_layers, make_state
from bpt.layers import LAYERS, DataLayer
from bpt.plan.nets import NetPlan
from bpt.proto import bpt_pb2 as pb

LEAST_AXES = 3  # of an input that has places: (N, channels, a spatial axis, …)


@dataclass(frozen=True)
class ClassifierNet:
    """A net from its input to its class scores; of one sample, unless more are asked for.

    Attributes:
        graph: in which every layer between input and scores hands a gradient back.
        input: edge that the caller sets, of shape (1, channels, spatial axes …).
        scores: edge of shape (1, classes), perhaps with further axes of length 1.
        found: how the scores were found, in words.
        by_softmax: whether a softmax over the scores gives probabilities.
        data: the layer of the text that made the input: an Input layer, or the data layer that one replaces.
        left_out: layers that need more than the input (labels, say), and what stands behind them.
    """

    graph: LayerGraph
    input: Edge
    scores: Edge
    found: str
    by_softmax: bool
    data: LayerSpec
    left_out: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        return self.scores.shape[1]

    @property
    def axes(self) -> int:
        """Spatial axes of the input."""
        return len(self.input.shape) - 2


def classifier_net(plan: NetPlan, batch: int = 1) -> ClassifierNet:
    """The net of ``plan``, in the phase TEST, as it classifies.

    The first top with spatial axes of an Input or a data layer is the input; an Input layer with so many samples in a
    ``batch`` takes the data layer's place. Other tops of such layers (labels) are left out with the layers that need
    them, such as Accuracy; SoftmaxWithLoss becomes the Softmax in it. The scores are the bottom of the last Softmax
    whose top no other layer reads; without one they are the net's only output.

    Raises:
        PrototxtError: the text is wrong; says where.
        UserError: the input, its shape or the scores cannot be told.
    """
    model, text = plan.source.path, plan.source.param
    plan = replace(plan, state=make_state(pb.TEST, plan.state.level, plan.state.stage))
    admitted = filter_layers(layer_specs(text, plan.source.origins), plan.state)
    data, blob, shape = _find_input(admitted, model)
    kept, left_out = _without_labels(admitted, data, blob)
    graph = _build(plan, [_input_layer(data, blob, (batch, *shape[1:])), *kept])
    scores, found, by_softmax = _find_scores(graph, model, batch, left_out)
    return ClassifierNet(graph, graph.edges[0], scores, found, by_softmax, data, left_out)


def _find_input(layers: Sequence[LayerSpec], model: str) -> tuple[LayerSpec, str, Shape]:
    """The layer that makes the input, the input's name and its shape with a batch of one."""
    errors: list[LayerError] = []
    sources = [spec for spec in layers if not spec.bottoms]
    for spec in sources:
        try:
            shapes = _shapes_of(spec)
        except LayerError as error:
            errors.append(error)
            continue
        for blob, shape in zip(spec.tops, shapes, strict=False):
            if len(shape) >= LEAST_AXES:
                return spec, blob, (1, *shape[1:])
    if errors:
        raise UserError(f"{errors[0]}; without the data the input's shape cannot be told: use the net's deploy text")
    named = ", ".join(f'"{spec.name}"' for spec in sources) or "none"
    raise UserError(f"{model}: no input with spatial axes (N, channels, …); layers without bottoms: {named}")


def _shapes_of(spec: LayerSpec) -> Sequence[Shape]:
    """Shapes of the tops of a layer without bottoms."""
    try:
        kind = LAYERS[spec.type]
    except UserError as error:
        raise spec.error(str(error), "type") from None
    if issubclass(kind, DataLayer) and (sample := kind.sample_shape(spec)):
        return ((1, *sample),)  # the data set itself may be on another machine
    return kind.infer(spec, ()).tops


def _input_layer(data: LayerSpec, blob: str, shape: Shape) -> LayerSpec:
    param = pb.LayerParameter(name=data.name, type="Input", top=[blob])
    param.input_param.shape.add(dim=shape)
    return LayerSpec(param, data.origins)


def _without_labels(layers: Sequence[LayerSpec], data: LayerSpec, blob: str) -> tuple[list[LayerSpec], tuple[str, ...]]:
    """The layers that can be computed from the input alone, and the names of the others."""
    made = {blob}
    kept: list[LayerSpec] = []
    left_out: list[str] = []
    for spec in layers:
        if spec.type == "SoftmaxWithLoss" and spec.bottoms[:1] and spec.bottoms[0] in made:
            spec = _softmax_in(spec, made)
        if spec is not data and spec.bottoms and made.issuperset(spec.bottoms):
            kept.append(spec)
            made.update(spec.tops)
        elif spec.bottoms:
            left_out.append(spec.name)
            made.difference_update(spec.tops)  # a layer in place has made another version of its blob
    return kept, tuple(left_out)


def _softmax_in(loss: LayerSpec, made: set[str]) -> LayerSpec:
    """The Softmax that a SoftmaxWithLoss contains, with a top of a name that is free."""
    top = loss.tops[1] if len(loss.tops) == 2 else loss.name
    while top in made:
        top += "_"
    param = pb.LayerParameter(name=loss.name, type="Softmax", bottom=[loss.bottoms[0]], top=[top])
    param.softmax_param.CopyFrom(loss.param.softmax_param)
    return replace(loss, param=param)


def _build(plan: NetPlan, layers: Sequence[LayerSpec]) -> LayerGraph:
    param = plan.source.param
    fed = pb.NetParameter(name=param.name, force_backward=True, layer=[spec.param for spec in layers])
    origins = {
        ("layer", index, *path): origin for index, spec in enumerate(layers) for path, origin in spec.origins.items()
    }
    source = replace(plan.source, param=fed, origins=origins)
    # The layers are those of the state already; with the state's level and stages their rules admit them again.
    return replace(plan, source=source).graph()


def _find_scores(graph: LayerGraph, model: str, batch: int, left_out: Sequence[str]) -> tuple[Edge, str, bool]:
    """The edge of the class scores, how it was found, and whether a Softmax follows."""
    ends = [node for node in graph.nodes if node.type == "Softmax" and graph.edges[node.tops[0]].consumer is None]
    if ends:
        edge = graph.edges[ends[-1].bottoms[0]]
        found = f'the bottom of "{ends[-1].name}", the last softmax'
        if ends[-1].spec.param.softmax_param.axis % len(edge.shape) != 1:
            raise ends[-1].spec.error("the classes must be along axis 1", "softmax_param", "axis")
    else:
        outputs = [edge for edge in graph.outputs if edge.shape and graph.nodes[edge.producer].type != "Input"]
        if len(outputs) != 1:
            names = ", ".join(f'"{edge.blob}"' for edge in outputs) or "none"
            needy = f"; left out, as they need more than the input: {', '.join(left_out)}" if left_out else ""
            raise UserError(
                f"{model}: cannot tell the class scores: no Softmax at the end, and not one output ({names}){needy}"
            )
        edge, found = outputs[0], "the net's output"
    if len(edge.shape) < 2 or edge.shape[0] != batch or count(edge.shape[1:]) != edge.shape[1]:
        raise UserError(
            f'{model}: blob "{edge.blob}", {found}, has shape {edge.shape}; there must be a score for each class, '
            "(N, classes)"
        )
    return edge, found, bool(ends)
