"""The layers and shapes of a network file for ``bpt draw`` and net_summary, even without its data."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from bpt.base.errors import PrototxtError, UserError
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import fields_of, is_message
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import LayerSpec, Shape, shape_text
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.net_graph import build_graph_of

_COLOUR = 3


@dataclass(frozen=True)
class NetFile:
    """A net in one phase.

    Attributes:
        plan: its text and state.
        layers: the layers of the phase, with their numbers in the text.
        graph: the graph; ``None`` if the shapes are unknown.
        notes: the assumptions, or why there is no graph.
    """

    plan: NetPlan
    layers: tuple[tuple[int, LayerSpec], ...]
    graph: LayerGraph | None
    notes: tuple[str, ...] = ()

    @property
    def has_phases(self) -> bool:
        """Whether the text has layers for one phase only."""
        rules = (rule for layer in self.plan.source.param.layer for rule in (*layer.include, *layer.exclude))
        return any(rule.HasField("phase") for rule in rules)

    @property
    def shapes(self) -> dict[tuple[int, int], Shape]:
        """The shape of each top, by (a layer's number in the text, the top's number)."""
        if self.graph is None:
            return {}
        nodes = iter(self.graph.nodes)
        found: dict[tuple[int, int], Shape] = {}
        for number, spec in self.layers:
            node = next(node for node in nodes if (node.name, node.spec.tops) == (spec.name, spec.tops))
            found.update({(number, top): self.graph.edges[edge].shape for top, edge in enumerate(node.tops)})
        return found


def read_net_file(
    path: str,
    phase: int,
    level: int = 0,
    stages: tuple[str, ...] = (),
    *,
    shape: Shape = (),
    batch: int = 0,
    needs_shapes: bool = True,
) -> NetFile:
    """Return the net at ``path``.

    Missing data are assumed to be images of the size to which the text crops or resizes them.

    Args:
        shape: the shape of a sample; the data are then not read.
        batch: the number of samples that replaces the text's; 0 keeps the text's.
        needs_shapes: refuse a net whose shapes cannot be found, instead of reporting it in the notes.

    Raises:
        UserError: the text is wrong; with ``needs_shapes`` also if its shapes do not fit or cannot be known.
    """
    plan = file_plan(path, phase, level, stages)
    specs = layer_specs(plan.source.param, plan.source.origins)
    numbers = {id(spec): number for number, spec in enumerate(specs)}
    layers = tuple((numbers[id(spec)], spec) for spec in filter_layers(specs, plan.state))
    if not layers:
        build_graph_of(plan)  # it reports that no layer is left
    notes: list[str] = []
    try:
        used, notes = _with_inputs(plan, [number for number, _ in layers], shape, batch)
        return NetFile(plan, layers, build_graph_of(used), tuple(notes))
    except UserError as error:
        reason = "; ".join((str(error), *notes))  # the net may be right, and the assumptions wrong
        if needs_shapes:
            if notes:
                raise UserError(reason) from None
            raise
        return NetFile(plan, layers, None, (f"shapes are not known: {reason}",))


def _with_inputs(plan: NetPlan, layers: list[int], shape: Shape, batch: int) -> tuple[NetPlan, list[str]]:
    """Return the net with Input layers for data layers whose data are missing, and with batches of ``batch``."""
    param = pb.NetParameter()
    param.CopyFrom(plan.source.param)
    notes = []
    for number in layers:
        layer = param.layer[number]
        if batch:
            _set_batch(layer, batch)
        if not reads_data(layer.type):
            continue
        source = _source_of(layer)
        if shape or (source and not os.path.exists(source)):
            sample = shape or _sample(layer)
            if not sample:
                origin = plan.source.origin("layer", number)
                raise PrototxtError(
                    f'layer "{layer.name}": {source} is not here, and the text does not tell the shape of a sample; '
                    "give it: --shape 3x224x224",
                    origin,
                )
            if not shape:
                words = shape_text(sample)
                notes.append(
                    f"{source} is not here: its samples are taken to be {words}, after the text (--shape corrects it)"
                )
            make_input(layer, sample)
    return replace(plan, source=replace(plan.source, param=param)), notes


def reads_data(type_name: str) -> bool:
    """Return whether layers of that type read a data set."""
    return type_name in LAYERS and issubclass(LAYERS[type_name], DataLayer)


def _parameters(layer: pb.LayerParameter, field: str) -> list[Any]:
    """Return the settings of ``layer`` that have ``field``."""
    found = []
    for descriptor in fields_of(layer):
        if is_message(descriptor) and descriptor.name.endswith("_param"):
            message = getattr(layer, descriptor.name)
            if layer.HasField(descriptor.name) and field in message.DESCRIPTOR.fields_by_name:
                found.append(message)
    return found


def _source_of(layer: pb.LayerParameter) -> str:
    return next((str(message.source) for message in _parameters(layer, "source")), "")


def _set_batch(layer: pb.LayerParameter, batch: int) -> None:
    for message in _parameters(layer, "batch_size"):
        message.batch_size = batch
    shapes = layer.input_param.shape if layer.type == "Input" else layer.dummy_data_param.shape
    if layer.type in ("Input", "DummyData"):
        for shape in shapes:
            if shape.dim:
                shape.dim[0] = batch


def _sample(layer: pb.LayerParameter) -> Shape:
    """Return the shape of a sample as far as the text gives it; () if it is incomplete."""
    transform, image = layer.transform_param, layer.image_data_param
    resize = transform.resize_param
    height = transform.crop_size or transform.crop_h or image.new_height or resize.height
    width = transform.crop_size or transform.crop_w or image.new_width or resize.width
    if not (height and width):
        return ()
    grey = transform.force_gray or not image.is_color or len(transform.mean_value) == 1
    return (1 if grey else _COLOUR), height, width


def sample_without_data(layer: pb.LayerParameter) -> Shape:
    """Return the shape of a sample after the text alone, if the data of ``layer`` are not here; else ()."""
    source = _source_of(layer) if reads_data(layer.type) else ""
    return _sample(layer) if source and not os.path.exists(source) else ()


def make_input(layer: pb.LayerParameter, sample: Shape) -> None:
    """Turn a data layer into an Input with the same batch."""
    size = next((int(message.batch_size) for message in _parameters(layer, "batch_size")), 1)
    kind = LAYERS[layer.type]
    label = kind.label_shape(size) if issubclass(kind, DataLayer) else (size,)
    for number in range(len(layer.top)):
        layer.input_param.shape.add(dim=(size, *sample) if number == 0 else label)
    layer.type = "Input"
