"""The workload of a solver's training net for ``bpt simulate``: its size, its work, its data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bpt.base.errors import UsageError, UserError
from bpt.base.violation import refuse
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape, count
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.layers.data import record_stream_of
from bpt.nn.net_file import make_input, reads_data
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.parallel.balance.divisible_batches import (
    divisible_batch,
    samples_together,
    violations_dealt_out,
    violations_of_data_set,
)

_OF_IMAGE = 3  # dimensions of an image
_TRAINING = 3  # operations of a training pass as a multiple of a forward pass: backward computes two gradients


@dataclass(frozen=True)
class NetWorkload:
    """The properties of a training net that determine the time of a run.

    Attributes:
        name: the name of the net.
        samples: N, the samples of the data set.
        batch: samples of an iteration, over all its passes (``iter_size``).
        flops: floating-point operations of a sample in training: those of forward, and twice as many for backward.
        parameters: elements of all weights.
        weights: c_w, the bytes of all weights.
        record: bytes of a sample that the server sends (``ship_data``): those of the first record of the data set or,
            if the data set is not opened, one for each element of an image; 0: the server sends no samples.
        grain: samples that are always assigned to a node together.
    """

    name: str
    samples: int
    batch: int
    flops: float
    parameters: int
    weights: int
    record: int
    grain: int = 1


def workload_of(run: RunPlan, samples: int = 0, shape: Shape = ()) -> NetWorkload:
    """Return the workload of the training net.

    Args:
        samples: N; 0: as many as its data layer reads.
        shape: the shape of a sample, which replaces the data set; empty: that of the data.

    Raises:
        PrototxtError: the net is wrong, has no batch size, or its data cannot be sent.
        UserError: the number of samples is not known.
    """
    graph = build_graph_of(without_data(run.train, shape) if shape else run.train)
    refuse(run, violations_dealt_out(run, graph))
    batch = divisible_batch(run, graph)
    ships = run.parallel_param.ship_data
    record = ships * count(shape)
    if not shape:
        found, record = _read_data_set(graph, ships)
        samples = samples or found
    if not samples:
        raise UserError("the training net does not read a data set; give the number of samples: --samples N")
    refuse(run, violations_of_data_set(graph, samples))
    return NetWorkload(
        name=graph.name or "the net",
        samples=samples,
        batch=batch * run.optim.iter_size,
        flops=_TRAINING * graph.flops / batch,
        parameters=graph.num_parameters,
        weights=graph.num_parameters * run.precision.master.itemsize,
        record=record,
        grain=samples_together(graph),
    )


def _read_data_set(graph: LayerGraph, ships: bool) -> tuple[int, int]:
    """Return the samples of the net's data set and, if the server sends records, the bytes of the first one, else 0.

    A net without a data set has 0 samples. All data layers have the same number of samples, as in a real run, and the
    bytes of their records are summed.
    """
    samples, record = 0, 0
    for node in graph.nodes:
        layer_type = LAYERS[node.type]
        if not issubclass(layer_type, DataLayer):
            continue
        layer = layer_type(node.spec, PassContext())
        try:
            samples = samples or layer.epoch
            if ships:
                shipment = record_stream_of(layer)
                shipment.close()
                record += sum(map(len, shipment.header.first))
        finally:
            layer.close()
    return samples, record


def without_data(plan: NetPlan, shape: Shape) -> NetPlan:
    """Return the net with Input layers instead of data layers; all tops but the first have one number for each sample.

    Raises:
        UsageError: a layer reads images, and the shape is not that of an image.
    """
    param = pb.NetParameter()
    param.CopyFrom(plan.source.param)
    for layer in param.layer:
        if reads_data(layer.type):
            if LAYERS[layer.type].reads_images and len(shape) != _OF_IMAGE:
                raise UsageError(
                    f'--shape {"x".join(map(str, shape))}: layer "{layer.name}" reads images, which have channels x '
                    "height x width: --shape 3x224x224, say"
                )
            make_input(layer, shape)
    return replace(plan, source=replace(plan.source, param=param))
