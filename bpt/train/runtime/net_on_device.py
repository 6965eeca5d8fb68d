"""Makes nets on a device, if they fit into its memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from bpt.base.errors import RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape, count
from bpt.graph.part import WHOLE, Part
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.device import computes_apart
from bpt.system.device.memory_use import obtainable_memory
from bpt.system.device.torch_errors import is_out_of_memory


def make_net(
    graph: LayerGraph,
    device: torch.device,
    context: PassContext | None = None,
    shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
    part: Part = WHOLE,
    filled: bool = True,
) -> Net:
    """Return the net of ``graph`` on ``device``; ``context``, ``shared``, ``part`` and ``filled`` are as for Net.

    Raises:
        RunError: the device does not have enough memory.
    """
    context = context or PassContext()
    _check_fits(graph, part, context, obtainable_memory(device))
    net = Net(graph, context, shared, part, filled)
    try:
        net = net.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        size = _gib(_elements(graph, part) * context.precision.master.itemsize)
        raise RunError(f'net "{graph.name}": the device has no room for its parameters, which take {size}') from error
    if computes_apart(device):
        for layer in net.data_layers().values():
            if isinstance(layer, PrefetchingDataLayer):
                layer.prefetch_to(device)
    return net


def _check_fits(graph: LayerGraph, part: Part, context: PassContext, memory: int) -> None:
    """Refuse a net that exceeds the memory, because the system would kill the process later."""
    precision = context.precision

    def refuse_above(what: str, layer: int, shape: Shape, itemsize: int) -> None:
        size = count(shape) * itemsize
        if size > memory:
            raise RunError(
                f'layer "{graph.nodes[layer].name}": {what} of shape {shape} takes {_gib(size)}, '
                f"but the device has {_gib(memory)} of memory"
            )

    for param in filter(part.holds, graph.learnable):
        refuse_above(f"parameter {param.blob}", param.layer, part.shape_of(param), precision.master.itemsize)
    for edge, itemsize in zip(graph.edges, blob_itemsizes(graph, precision), strict=True):
        if part.runs(edge.producer):
            refuse_above(f'top "{edge.blob}"', edge.producer, context.own_shape(edge.shape), itemsize)
    # In training each parameter has a gradient of its size.
    copies = 2 if graph.phase == pb.TRAIN else 1
    elements = _elements(graph, part)
    size = elements * copies * precision.master.itemsize
    if size > memory:
        whose = f"its {elements} parameters{' on this rank' * (elements < graph.num_parameters)}"
        raise RunError(
            f'net "{graph.name}": {whose}{" and their gradients" * (copies > 1)} take {_gib(size)}, '
            f"but the device has {_gib(memory)} of memory"
        )


def _elements(graph: LayerGraph, part: Part) -> int:
    """Return the number of elements of a rank's parameters; shared ones count once."""
    return sum(count(part.shape_of(param)) for param in filter(part.holds, graph.learnable))


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
