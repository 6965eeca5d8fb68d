"""The data set that the workers of the outer layer share, and its number of samples."""

from __future__ import annotations

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net
from bpt.parallel.balance.divisible_batches import violations_of_data_set

_Exchange = pb.ParallelParameter.Exchange


def dealt_layers(net: Net) -> tuple[PrefetchingDataLayer, ...]:
    """Return the layers of ``net`` that read a data set whose samples are divided among the workers.

    Raises:
        LayerError: a data layer's samples cannot be divided.
    """
    layers = []
    for layer in net.data_layers().values():
        if not isinstance(layer, PrefetchingDataLayer):
            reason = layer.mixes_samples(layer.spec, ()) or "its samples have no numbers"
            raise layer.spec.error(f"{reason}; SGWU, AGWU and ASGD need a data set on disk", "type")
        layers.append(layer)
    return tuple(layers)


def samples_of(net: Net, exchange: int) -> int:
    """Return N, the number of samples of the data set that ``net`` trains.

    Raises:
        LayerError: its data layers have different numbers of samples, or lack the whole batches that a layer needs.
        UserError: it has no data set.
    """
    layers = dealt_layers(net)
    if not layers:
        raise PrototxtError(
            f"the training net has no layer that reads a data set, which exchange: {_Exchange.Name(exchange)} could "
            "divide among the workers; use exchange: ALLREDUCE"
        )
    first, *others = layers
    for layer in others:
        if layer.epoch != first.epoch:
            raise layer.spec.error(
                f'has {layer.epoch} samples, but layer "{first.spec.name}" has {first.epoch}: a worker could not know '
                "which belong together; use exchange: ALLREDUCE"
            )
    for violation in violations_of_data_set(net.graph, first.epoch):
        raise violation.error(lambda *_: None)
    return first.epoch
