"""Makes nets on a device, if it has room for them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from bpt.context import RunContext
from bpt.device import memory_of
from bpt.errors import RunError
from bpt.failures import is_out_of_memory
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.spec import Shape, count
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb

_FLOAT = 4  # bytes


def make_net(
    graph: LayerGraph,
    device: torch.device,
    context: RunContext | None = None,
    shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
) -> Net:
    """The net of ``graph`` on ``device``; see Net for ``context`` and ``shared``.

    Raises:
        RunError: the device has not enough memory.
    """
    _check_fits(graph, memory_of(device))
    net = Net(graph, context, shared)
    try:
        return net.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        size = _gib(graph.num_parameters * _FLOAT)
        raise RunError(f'net "{graph.name}": the device has no room for its parameters, which take {size}') from error


def _check_fits(graph: LayerGraph, memory: int) -> None:
    """Refuse what cannot fit: a system that promises more memory than it has would kill the process later on."""

    def refuse_above(what: str, layer: int, shape: Shape) -> None:
        size = count(shape) * _FLOAT
        if size > memory:
            raise RunError(
                f'layer "{graph.nodes[layer].name}": {what} of shape {shape} takes {_gib(size)}, '
                f"but the device has {_gib(memory)} of memory"
            )

    for param in graph.learnable:
        refuse_above(f"parameter {param.blob}", param.layer, param.shape)
    for edge in graph.edges:
        refuse_above(f'top "{edge.blob}"', edge.producer, edge.shape)
    # In training each parameter has a gradient of its size.
    copies = 2 if graph.phase == pb.TRAIN else 1
    size = graph.num_parameters * copies * _FLOAT
    if size > memory:
        raise RunError(
            f'net "{graph.name}": its {graph.num_parameters} parameters{" and their gradients" * (copies > 1)} take '
            f"{_gib(size)}, but the device has {_gib(memory)} of memory"
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
