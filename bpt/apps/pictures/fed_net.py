"""A net of images or scans that its caller feeds: one input, and what can be computed from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bpt.base.errors import LayerError, UserError
from bpt.config.plan.nets import NetPlan, make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.left_out import explain_left_out, explain_none_in
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.net_graph import build_graph_of

LEAST_AXES = 3  # of an input that has places: (N, channels, a spatial axis, …)


@dataclass(frozen=True)
class NetWithInputs:
    """A net from its input on; of one sample, unless more are asked for.

    Attributes:
        model: the file of its text.
        graph: from the input on.
        input: edge that the caller sets, of shape (N, channels, spatial axes …).
        data: the layer of the text that made the input: an Input layer, or the data layer that one replaces.
        left_out: layers that need more than the input (labels, say), and what stands behind them.
    """

    model: str
    graph: LayerGraph
    input: Edge
    data: LayerSpec
    left_out: tuple[str, ...]

    @property
    def axes(self) -> int:
        """Spatial axes of the input."""
        return len(self.input.shape) - 2

    @property
    def left_out_words(self) -> str:
        """Which layers are left out, as the end of a message; empty if none is."""
        return f"; left out, as they need more than the input: {', '.join(self.left_out)}" if self.left_out else ""


def fed_net(plan: NetPlan, batch: int = 1, *, force_backward: bool = False) -> NetWithInputs:
    """Return the net of ``plan``, in the phase TEST.

    The first top with spatial axes of an Input or a data layer is the input; an Input layer with so many samples in a
    ``batch`` takes the data layer's place. Other tops of such layers (labels) are left out with the layers that need
    them, such as Accuracy; SoftmaxWithLoss becomes the Softmax in it.

    Args:
        force_backward: every layer hands a gradient back, if it can.

    Raises:
        PrototxtError: the text is wrong; says where.
        UserError: the input or its shape cannot be told.
    """
    model, text = plan.source.path, plan.source.param
    plan = replace(plan, state=make_state(pb.TEST, plan.state.level, plan.state.stage))
    layers = layer_specs(text, plan.source.origins)
    admitted = filter_layers(layers, plan.state)
    data, blob, shape = _find_input(admitted, model, explain_none_in(_sources(layers), plan.state))
    kept, left_out = _without_labels(admitted, data, blob)
    graph = _build(plan, [_input_layer(data, blob, (batch, *shape[1:])), *kept], force_backward)
    named = tuple(_name_with_reason(spec, layers, plan.state) for spec in left_out)
    return NetWithInputs(model, graph, graph.edges[0], data, named)


def _name_with_reason(spec: LayerSpec, layers: Sequence[LayerSpec], state: pb.NetState) -> str:
    """Return the name of a layer that is left out and, if a rule is the cause, the rule."""
    earlier = layers[: layers.index(spec)]
    admitted = {blob for layer in filter_layers(earlier, state) for blob in layer.tops}
    for blob in spec.bottoms:
        if blob not in admitted and (why := explain_left_out(blob, earlier, state, same_phase=True)):
            return f'{spec.name} (no earlier layer makes bottom "{blob}"{why})'
    return spec.name


def _sources(layers: Sequence[LayerSpec]) -> list[LayerSpec]:
    return [spec for spec in layers if not spec.bottoms]


def _find_input(layers: Sequence[LayerSpec], model: str, rules: str) -> tuple[LayerSpec, str, Shape]:
    """Return the layer that makes the input, the input's name and its shape with a batch of one.

    ``rules`` says, at the end of a message, which rule leaves out an input.
    """
    errors: list[LayerError] = []
    sources = _sources(layers)
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
    raise UserError(f"{model}: no input with spatial axes (N, channels, …); layers without bottoms: {named}{rules}")


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


def _without_labels(layers: Sequence[LayerSpec], data: LayerSpec, blob: str) -> tuple[list[LayerSpec], list[LayerSpec]]:
    """Return the layers that can be computed from the input alone, and the others."""
    made = {blob}
    kept: list[LayerSpec] = []
    left_out: list[LayerSpec] = []
    for spec in layers:
        if spec.type == "SoftmaxWithLoss" and spec.bottoms[:1] and spec.bottoms[0] in made:
            spec = _softmax_in(spec, made)
        if spec is not data and spec.bottoms and made.issuperset(spec.bottoms):
            kept.append(spec)
            made.update(spec.tops)
        elif spec.bottoms:
            left_out.append(spec)
            made.difference_update(spec.tops)  # a layer in place has made another version of its blob
    return kept, left_out


def _softmax_in(loss: LayerSpec, made: set[str]) -> LayerSpec:
    """Return the Softmax that a SoftmaxWithLoss contains, with a top of a name that is free."""
    top = loss.tops[1] if len(loss.tops) == 2 else loss.name
    while top in made:
        top += "_"
    param = pb.LayerParameter(name=loss.name, type="Softmax", bottom=[loss.bottoms[0]], top=[top])
    param.softmax_param.CopyFrom(loss.param.softmax_param)
    return replace(loss, param=param)


def _build(plan: NetPlan, layers: Sequence[LayerSpec], force_backward: bool) -> LayerGraph:
    param = plan.source.param
    fed = pb.NetParameter(name=param.name, force_backward=force_backward, layer=[spec.param for spec in layers])
    origins = {
        ("layer", index, *path): origin for index, spec in enumerate(layers) for path, origin in spec.origins.items()
    }
    source = replace(plan.source, param=fed, origins=origins)
    # The layers are those of the state already; with the state's level and stages their rules admit them again.
    return build_graph_of(replace(plan, source=source))
