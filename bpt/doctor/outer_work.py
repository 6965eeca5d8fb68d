"""What there is to do in a run of the outer layer, as rank 0 sees it from its texts and data before the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from bpt.balance.allocation import size
from bpt.doctor.content import lmdb_bytes
from bpt.graph.layer_graph import LayerGraph, Node
from bpt.graph.part import Part
from bpt.layers import LAYERS, DataLayer
from bpt.layers.batch_size import batch_of
from bpt.layers.data import shipment_of
from bpt.net import Net
from bpt.optim.rules import UPDATE_RULES
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.outer.exchanges import make_schedule, passes_of
from bpt.schedule.outer.instructions import Send
from bpt.server.legality import samples_of

# Messages with a field "shuffle".
_SHUFFLED = ("data_param", "hdf5_data_param", "image_data_param", "volume_data_param")


@dataclass(frozen=True)
class Work:
    """What is to be trained, and what it takes.

    Attributes:
        samples: N.
        batch: samples of an iteration.
        iterations: of one process, that are left.
        passes: K.
        total: K'; 0: nothing is left to train.
        batches: A.
        first: samples that each worker gets first.
        elements: of the weights.
        moments: copies of the weights that the update rule keeps.
        records: bytes of all records, if the server sends them.
        unshuffled: the first data layer and its message, if it has the order of its source.
    """

    samples: int
    batch: int
    iterations: int
    passes: Fraction
    total: Fraction
    batches: int
    first: tuple[int, ...]
    elements: int
    moments: int
    records: int
    unshuffled: tuple[str, str] | None


def work_of(param: pb.SolverParameter, graph: LayerGraph, start: int, powers: Sequence[float | None]) -> Work:
    """What a run will do.

    Args:
        param: the solver.
        graph: the training net.
        start: the iteration that it goes on from.
        powers: of each worker; ``None``: unknown.

    Raises:
        UserError: the net, the data and the number of workers do not go together, or the data cannot be sent.
    """
    parallel = param.parallel_param
    nodes = [node for node in graph.nodes if issubclass(LAYERS[node.type], DataLayer)]
    samples = _samples(parallel, graph, nodes)
    batch = batch_of(graph) * param.iter_size
    iterations = max(param.max_iter - start, 0)
    passes, total, batches, first = passes_of(iterations, batch, samples), Fraction(0), 1, (0,) * len(powers)
    if iterations:
        schedule = make_schedule(parallel, samples, len(powers), passes)
        orders = {i.order.worker: i.order for i in schedule.begin(powers) if isinstance(i, Send)}
        first = tuple(size(orders[worker].runs) if worker in orders else 0 for worker in range(len(powers)))
        total, batches = schedule.total, schedule.idpa.batches
    return Work(
        samples=samples,
        batch=batch,
        iterations=iterations,
        passes=passes,
        total=total,
        batches=batches,
        first=first,
        elements=graph.num_parameters,
        moments=UPDATE_RULES[param.type].moments,
        records=_records(nodes) if parallel.ship_data else 0,
        unshuffled=_unshuffled(nodes[0]),
    )


def _samples(parallel: pb.ParallelParameter, graph: LayerGraph, nodes: Sequence[Node]) -> int:
    """N; of the net nothing is made but the layers that read data."""
    net = Net(graph, part=Part(frozenset(node.index for node in nodes)))
    try:
        if parallel.ship_data:
            for layer in net.data_layers().values():
                shipment_of(layer).close()
        return samples_of(net, parallel.exchange)
    finally:
        net.close()


def _records(nodes: Sequence[Node]) -> int:
    return sum(lmdb_bytes(node.spec.param.data_param.source) for node in nodes)


def _unshuffled(node: Node) -> tuple[str, str] | None:
    for message in _SHUFFLED:
        if node.spec.param.HasField(message):
            return None if getattr(node.spec.param, message).shuffle else (node.name, message)
    return None
