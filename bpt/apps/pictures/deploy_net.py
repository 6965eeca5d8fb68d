"""Derive a deploy net from a train text: an Input layer replaces the data, and no layer needs labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bpt.base.errors import LayerError, UserError
from bpt.config.plan.nets import NetPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.left_out import explain_left_out, explain_none_in
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.layers.loss import Loss

LEAST_AXES = 3  # fewest axes of an input with spatial axes: (N, channels, a spatial axis, …)
WITH_SOFTMAX = ("SoftmaxWithLoss", "SoftmaxWithLossOHEM", "InfogainLoss")
"""The losses that contain a Softmax. The deploy net has the Softmax alone."""


@dataclass(frozen=True)
class DeployNet:
    """A deploy net, and what it changes in its train text.

    Attributes:
        plan: the net; its first layer is the Input layer.
        data: the layer of the train text that made the input.
        left_out: the layers that need more than the input, such as labels, with the reason if a rule is the cause. If
            side losses are left out, also the losses without a softmax.
        losses: the losses of the train text that Softmax layers of the same names replace.
        side_losses: the losses with a lower weight than another one, if they are left out with the layers that only
            they need.
    """

    plan: NetPlan
    data: LayerSpec
    left_out: tuple[str, ...]
    losses: tuple[LayerSpec, ...]
    side_losses: tuple[str, ...] = ()


def derive_deploy(
    plan: NetPlan,
    batch: int = 1,
    *,
    force_backward: bool = False,
    least_axes: int = LEAST_AXES,
    side_losses: bool = True,
    shape: Shape = (),
) -> DeployNet:
    """Return the deploy net of ``plan``, in the phase of its state.

    The input is the first top of an Input or a data layer that has at least ``least_axes`` axes; an Input layer
    replaces the data layer. Other tops of such layers (labels) are left out with the layers that need them, such as
    Accuracy. A Softmax replaces each loss that contains one.

    Args:
        plan: the train text.
        batch: samples of a batch.
        force_backward: let every layer compute the gradient of its bottoms, if it can.
        least_axes: the fewest axes of the input.
        side_losses: keep the losses with a lower weight than another one, and those without a softmax.
        shape: the shape of a sample, instead of the data set's; (): the data set's.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        UserError: the input or its shape cannot be determined.
    """
    layers = layer_specs(plan.source.param, plan.source.origins)
    admitted = filter_layers(layers, plan.state)
    rules = explain_none_in(_sources(layers), plan.state)
    data, blob, extents = _find_input(admitted, plan.source.path, rules, least_axes, shape)
    kept, left_out, losses = _without_labels(admitted, data, blob)
    side = [] if side_losses else _side_losses(losses)
    others = [] if side_losses else [spec for spec in kept if issubclass(LAYERS[spec.type], Loss)]
    kept = _without([spec for spec in kept if spec not in others], side)
    named = tuple(_name_with_reason(spec, layers, plan.state) for spec in left_out) + tuple(
        spec.name for spec in others
    )
    fed = _with_layers(plan, [_input_layer(data, blob, (batch, *extents[1:])), *kept], force_backward)
    main = tuple(loss for softmax, loss in losses.items() if softmax not in side)
    return DeployNet(fed, data, named, main, tuple(spec.name for spec in side))


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


def _find_input(
    layers: Sequence[LayerSpec], model: str, rules: str, least_axes: int, sample: Shape
) -> tuple[LayerSpec, str, Shape]:
    """Return the layer that makes the input, the input's name and its shape with a batch of one.

    Args:
        layers: the net's layers.
        model: the net's file, for messages.
        rules: the end of a message that says which rule leaves out an input.
        least_axes: the fewest axes of the input.
        sample: the shape of a sample; (): that of the data set.
    """
    errors: list[LayerError] = []
    sources = _sources(layers)
    for spec in sources:
        try:
            shapes = _shapes_of(spec, sample)
        except LayerError as error:
            errors.append(error)
            continue
        for blob, shape in zip(spec.tops, shapes, strict=False):
            if len(shape) >= least_axes:
                return spec, blob, (1, *shape[1:])
    if errors:
        raise UserError(f"{errors[0]}; without the data the input's shape is unknown: use the net's deploy text")
    named = ", ".join(f'"{spec.name}"' for spec in sources) or "none"
    axes = "spatial axes (N, channels, …)" if least_axes >= LEAST_AXES else f"at least {least_axes} axes"
    raise UserError(f"{model}: no input with {axes}; layers without bottoms: {named}{rules}")


def _shapes_of(spec: LayerSpec, shape: Shape) -> Sequence[Shape]:
    """Return the shapes of the tops of a layer without bottoms; ``shape`` is that of a sample, if it is given."""
    try:
        kind = LAYERS[spec.type]
    except UserError as error:
        raise spec.error(str(error), "type") from None
    if issubclass(kind, DataLayer):  # the data set itself may be on another machine
        sample = shape or kind.sample_shape(spec)
        if sample:
            return ((1, *sample),)
    return kind.infer(spec, ()).tops


def _input_layer(data: LayerSpec, blob: str, shape: Shape) -> LayerSpec:
    param = pb.LayerParameter(name=data.name, type="Input", top=[blob])
    param.input_param.shape.add(dim=shape)
    return LayerSpec(param, data.origins)


def _side_losses(losses: Mapping[LayerSpec, LayerSpec]) -> list[LayerSpec]:
    """Return the Softmax layers of the losses with a lower weight than another one."""
    most = max(map(_loss_weight, losses.values()), default=0.0)
    return [softmax for softmax, loss in losses.items() if _loss_weight(loss) < most]


def _without(layers: Sequence[LayerSpec], dropped: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Return the ``layers`` without the ``dropped`` ones, and without the layers that only these need."""
    kept: list[LayerSpec] = []
    read: set[str] = set()  # blobs that any later layer reads
    needed: set[str] = set()  # blobs that a later layer that is kept reads
    for spec in reversed(layers):
        tops = set(spec.tops)
        if spec not in dropped and (tops & needed or not tops & read):
            kept.append(spec)
            needed = (needed - tops) | set(spec.bottoms)
        read = (read - tops) | set(spec.bottoms)
    return kept[::-1]


def _loss_weight(loss: LayerSpec) -> float:
    return loss.param.loss_weight[0] if loss.param.loss_weight else 1.0


def _without_labels(
    layers: Sequence[LayerSpec], data: LayerSpec, blob: str
) -> tuple[list[LayerSpec], list[LayerSpec], dict[LayerSpec, LayerSpec]]:
    """Return the layers that need only the input, the other layers, and a dict of each new Softmax → its loss."""
    made = {blob}
    kept: list[LayerSpec] = []
    left_out: list[LayerSpec] = []
    losses: dict[LayerSpec, LayerSpec] = {}
    for spec in layers:
        if spec.type in WITH_SOFTMAX and spec.bottoms[:1] and spec.bottoms[0] in made:
            loss, spec = spec, _softmax_in(spec, made)
            losses[spec] = loss
        if spec is not data and spec.bottoms and made.issuperset(spec.bottoms):
            kept.append(spec)
            made.update(spec.tops)
        elif spec.bottoms:
            left_out.append(spec)
            made.difference_update(spec.tops)  # if it works in place, its blob is no longer that of an earlier layer
    return kept, left_out, losses


def _softmax_in(loss: LayerSpec, made: set[str]) -> LayerSpec:
    """Return the Softmax that a loss contains; its top has a name that no other blob has."""
    top = loss.tops[1] if len(loss.tops) == 2 else loss.name
    while top in made:
        top += "_"
    param = pb.LayerParameter(name=loss.name, type="Softmax", bottom=[loss.bottoms[0]], top=[top])
    param.softmax_param.CopyFrom(loss.param.softmax_param)
    return replace(loss, param=param)


def _with_layers(plan: NetPlan, layers: Sequence[LayerSpec], force_backward: bool) -> NetPlan:
    param = plan.source.param
    fed = pb.NetParameter(name=param.name, force_backward=force_backward, layer=[spec.param for spec in layers])
    origins = {
        ("layer", index, *path): origin for index, spec in enumerate(layers) for path, origin in spec.origins.items()
    }
    # The layers are already those of the state, and their rules admit them again.
    return replace(plan, source=replace(plan.source, param=fed, origins=origins))


def reads_own_data(plan: NetPlan) -> bool:
    """Return whether a layer of the net reads data itself, which makes the text a train text."""
    sources = _sources(filter_layers(layer_specs(plan.source.param, plan.source.origins), plan.state))
    return any(
        spec.type != "Input" and spec.type in LAYERS and not LAYERS[spec.type].gives_constants(spec) for spec in sources
    )
