"""The net that ``bpt explain`` runs: one input, class scores, and the layer whose maps are weighed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bpt.errors import LayerError, UserError
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.source import layer_specs
from bpt.graph.spec import LayerSpec, Shape, count
from bpt.graph.state import filter_layers
from bpt.layers import LAYERS, DataLayer
from bpt.plan.nets import NetPlan, file_plan
from bpt.proto import bpt_pb2 as pb

LEAST_AXES = 3  # of an input that has places: (N, channels, a spatial axis, …)


@dataclass(frozen=True)
class ExplainedNet:
    """A net of one sample, from its input to its class scores.

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
        return count(self.scores.shape)

    @property
    def axes(self) -> int:
        """Spatial axes of the input."""
        return len(self.input.shape) - 2


def explained_net(model: str, level: int = 0, stages: tuple[str, ...] = ()) -> ExplainedNet:
    """The net in the file ``model``, in its TEST phase, ready to be explained.

    The first top with spatial axes of an Input or a data layer is the input; an Input layer with a batch of one takes
    the data layer's place. Other tops of such layers (labels) are left out with the layers that need them, such as
    Accuracy; SoftmaxWithLoss becomes the Softmax in it. The scores are the bottom of the last Softmax whose top no
    other layer reads; without one they are the net's only output.

    Raises:
        PrototxtError: the text is wrong; says where.
        UserError: the input, its shape or the scores cannot be told.
    """
    plan = file_plan(model, pb.TEST, level, stages)
    text = plan.source.param
    admitted = filter_layers(layer_specs(text, plan.source.origins), plan.state)
    data, blob, shape = _find_input(admitted, model)
    kept, left_out = _without_labels(admitted, data, blob)
    graph = _build(plan, [_input_layer(data, blob, shape), *kept])
    scores, found, by_softmax = _find_scores(graph, model, left_out)
    return ExplainedNet(graph, graph.edges[0], scores, found, by_softmax, data, left_out)


def find_layer(net: ExplainedNet, name: str = "") -> Edge:
    """The edge that ``name`` means: what the layer of that name makes, or else the last version of the blob.

    Without a name: what the last layer makes that has the input's number of spatial axes, not all of length 1, and
    that the scores depend on; in a classifier that ends in a global pooling, the layer before this.

    Raises:
        UserError: there is none of that name (names near it are listed), or it cannot be explained.
    """
    graph = net.graph
    before = _ancestors(graph, net.scores)
    if not name:
        places = [edge for edge in graph.edges if edge.index in before and not _why_not(net, edge)]
        maps = [edge for edge in places if count(edge.shape[2:]) > 1 and edge.index != net.input.index]
        if not maps:
            raise UserError(f"no layer before the scores has {net.axes} spatial axes as the input has; see --layer")
        return maps[-1]
    edge = _named(net, name)
    if reason := _why_not(net, edge):
        raise UserError(f'--layer "{name}": {reason}')
    if edge.index not in before:
        raise UserError(f'--layer "{name}": the class scores do not depend on it')
    return edge


def layer_of(graph: LayerGraph, edge: Edge) -> str:
    """The name of the layer that makes ``edge``."""
    return graph.nodes[edge.producer].name


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


def _find_scores(graph: LayerGraph, model: str, left_out: Sequence[str]) -> tuple[Edge, str, bool]:
    """The edge of the class scores, how it was found, and whether a Softmax follows."""
    ends = [node for node in graph.nodes if node.type == "Softmax" and graph.edges[node.tops[0]].consumer is None]
    if ends:
        edge = graph.edges[ends[-1].bottoms[0]]
        found = f'the bottom of "{ends[-1].name}", the last softmax'
        if ends[-1].spec.param.softmax_param.axis % len(edge.shape) != 1:
            raise ends[-1].spec.error("explaining needs the classes along axis 1", "softmax_param", "axis")
    else:
        outputs = [edge for edge in graph.outputs if edge.shape and graph.nodes[edge.producer].type != "Input"]
        if len(outputs) != 1:
            names = ", ".join(f'"{edge.blob}"' for edge in outputs) or "none"
            needy = f"; left out, as they need more than the input: {', '.join(left_out)}" if left_out else ""
            raise UserError(
                f"{model}: cannot tell the class scores: no Softmax at the end, and not one output ({names}){needy}"
            )
        edge, found = outputs[0], "the net's output"
    if len(edge.shape) < 2 or edge.shape[0] != 1 or count(edge.shape) != edge.shape[1]:
        raise UserError(
            f'{model}: blob "{edge.blob}", {found}, has shape {edge.shape}; explaining needs the scores of one sample, '
            "(1, classes)"
        )
    return edge, found, bool(ends)


def _named(net: ExplainedNet, name: str) -> Edge:
    graph = net.graph
    nodes = [node for node in graph.nodes if node.type != "Split"]
    blobs = {edge.blob: edge for node in nodes for edge in (graph.edges[top] for top in node.tops)}
    for node in nodes:
        if node.name == name:
            tops = [graph.edges[top] for top in node.tops]
            if len(tops) != 1:
                names = ", ".join(edge.blob for edge in tops) or "none"
                raise UserError(f'--layer "{name}": the layer has {len(tops)} tops ({names}); name one of them')
            return tops[0]
    if name in blobs:
        return blobs[name]
    fit = [top for node in nodes for top in (graph.edges[index] for index in node.tops) if not _why_not(net, top)]
    known = list(dict.fromkeys([layer_of(graph, edge) for edge in fit] + [edge.blob for edge in fit]))
    raise UserError(f'--layer "{name}": no layer or blob has this name{_near(name, known)}')


def _near(name: str, known: Sequence[str]) -> str:
    """The known names nearest to ``name``, or all of them if none is near."""
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(f'"{lowered[word]}"' for word in near) + "?"
    return f" (with spatial axes: {', '.join(known)})"


def _why_not(net: ExplainedNet, edge: Edge) -> str:
    """Why the maps of ``edge`` cannot be weighed; empty if they can."""
    axes = max(len(edge.shape) - 2, 0)
    if axes != net.axes or not count(edge.shape):
        return f"its shape {edge.shape} has {axes} spatial axes, that of the input {net.input.shape} has {net.axes}"
    return ""


def _ancestors(graph: LayerGraph, edge: Edge) -> set[int]:
    """The edges that ``edge`` is computed from, without Splits' copies and itself."""
    seen: set[int] = set()
    waiting = [edge.producer]
    while waiting:
        node = graph.nodes[waiting.pop()]
        for bottom in node.bottoms:
            if bottom not in seen:
                seen.add(bottom)
                waiting.append(graph.edges[bottom].producer)
    return {index for index in seen if graph.nodes[graph.edges[index].producer].type != "Split"}
