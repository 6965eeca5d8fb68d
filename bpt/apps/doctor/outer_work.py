"""The work of a run of the outer layer, and checks of memory and disk space for weights and sent records."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from bpt.apps.doctor.content import lmdb_bytes
from bpt.apps.doctor.findings import Finding, Ranks, attempt, bytes_text, ok, problem
from bpt.apps.doctor.texts import errors_of
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.sample_partition import size
from bpt.engine.optim.rules import num_moments
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.part import Part
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.layers.base import batch_of
from bpt.nn.layers.data import record_stream_of
from bpt.nn.net import Net
from bpt.parallel.balance.divisible_batches import samples_together
from bpt.parallel.outer.exchanges import make_schedule, passes_of
from bpt.parallel.outer.outer_instructions import SendOrder
from bpt.system.device import CPU
from bpt.system.device.memory_use import Memory
from bpt.train.outer.data_set import samples_of
from bpt.train.outer.roles import Roles

_SHUFFLED = ("data_param", "hdf5_data_param", "image_data_param", "volume_data_param")
"""The messages that have a field "shuffle"."""


@dataclass(frozen=True)
class OuterWork:
    """The amounts of work and data of a run; letters are those of BPT-CNN.

    Attributes:
        samples: the number of training samples, N.
        batch: the number of samples of an iteration.
        iterations: the remaining iterations, counted as for one process.
        passes: the passes over all samples, K.
        total: the passes of a worker over its own samples, K'; 0: nothing remains to train.
        batches: the number of batches in which IDPA hands out the samples, A.
        first: the number of samples that each worker gets first.
        elements: the number of weights.
        weights: the bytes of the weights in memory and in messages.
        moments: the copies of the weights that the update rule keeps.
        records: the bytes of all records, if the server sends them.
        unshuffled: the first data layer and its message, if it keeps the order of its source.
    """

    samples: int
    batch: int
    iterations: int
    passes: Fraction
    total: Fraction
    batches: int
    first: tuple[int, ...]
    elements: int
    weights: int
    moments: int
    records: int
    unshuffled: tuple[str, str] | None


def work_of(plan: RunPlan, graph: LayerGraph, start: int, powers: Sequence[float | None]) -> OuterWork:
    """Return the work of a run.

    Args:
        plan: the plan of the run.
        graph: the training net.
        start: the iteration from which it resumes.
        powers: the power of each worker; ``None``: unknown.

    Raises:
        UserError: the net, the data and the number of workers do not fit together, or the data cannot be sent.
    """
    parallel = plan.parallel_param
    nodes = [node for node in graph.nodes if issubclass(LAYERS[node.type], DataLayer)]
    samples = _samples(parallel, graph, nodes)
    batch = batch_of(graph) * plan.optim.iter_size
    iterations = max(plan.max_iter - start, 0)
    passes, total, batches, first = passes_of(iterations, batch, samples), Fraction(0), 1, (0,) * len(powers)
    if iterations:
        schedule = make_schedule(plan, samples, len(powers), passes, samples_together(graph))
        orders = {i.order.worker: i.order for i in schedule.begin(powers) if isinstance(i, SendOrder)}
        first = tuple(size(orders[worker].runs) if worker in orders else 0 for worker in range(len(powers)))
        total, batches = schedule.total, schedule.idpa.batches
    return OuterWork(
        samples=samples,
        batch=batch,
        iterations=iterations,
        passes=passes,
        total=total,
        batches=batches,
        first=first,
        elements=graph.num_parameters,
        weights=graph.num_parameters * plan.precision.master.itemsize,
        moments=num_moments(plan.optim),
        records=_records(nodes) if parallel.ship_data else 0,
        unshuffled=_unshuffled(nodes[0]),
    )


def _samples(parallel: ParallelSpec, graph: LayerGraph, nodes: Sequence[LayerNode]) -> int:
    """Return the number of training samples; only the net's data layers are made."""
    net = Net(graph, part=Part(frozenset(node.index for node in nodes)))
    try:
        if parallel.ship_data:
            for layer in net.data_layers().values():
                record_stream_of(layer).close()
        return samples_of(net, parallel.exchange)
    finally:
        net.close()


def _records(nodes: Sequence[LayerNode]) -> int:
    return sum(lmdb_bytes(node.spec.param.data_param.source) for node in nodes)


def _unshuffled(node: LayerNode) -> tuple[str, str] | None:
    for message in _SHUFFLED:
        if node.spec.param.HasField(message):
            return None if getattr(node.spec.param, message).shuffle else (node.name, message)
    return None


PASSING = 3
"""Copies on the first of several ranks while weights are sent or received: whole, cut for the ranks, and in transit."""


def server_copies(work: OuterWork, workers: int, gradients: bool) -> int:
    """Return the number of copies of the weights that rank 0 may hold at once.

    These are the values of its net, the history of its rule, gradients under ASGD, the newest version, and a version
    that is tested or written. For each worker they are the version that it trains from, and its submission.
    """
    return 1 + work.moments + gradients + 2 + 2 * workers


def worker_copies(work: OuterWork, gradients: bool) -> tuple[int, int]:
    """Return the numbers of copies of the weights on a worker: on its device, and in main memory.

    The device holds values, gradients and history. Main memory holds a submission, received weights and, under ASGD,
    summed gradients.
    """
    return 2 + work.moments, 2 + gradients


def check_memory(
    ranks: Ranks, roles: Roles, work: OuterWork, device: torch.device, gradients: bool
) -> Iterator[Finding]:
    """Yield whether the ranks of each host have memory for their weights; a collective call.

    Args:
        ranks: all ranks.
        roles: the roles of the ranks.
        work: the work of the run.
        device: the device of this rank.
        gradients: whether workers submit gradients (ASGD).
    """
    c_w = work.weights
    server = server_copies(work, len(roles.workers), gradients) if roles.serves else 0
    on_device, in_main = _of_rank(roles, *worker_copies(work, gradients))
    on_gpu = device.type == "cuda"
    needs = ranks.world.allgather((int((server + in_main + on_device * (not on_gpu)) * c_w), Memory(CPU).room))
    found = False
    for host, members in ranks.by_host.items():
        need, room = sum(needs[rank][0] for rank in members), min(needs[rank][1] for rank in members)
        if need > room:
            found = True
            yield problem(
                f"host {host}: the copies of the weights on its ranks take {bytes_text(need)}, of {bytes_text(room)} "
                "that are free",
                "start fewer ranks there; rank 0 holds two copies for every worker, so give it a host with much memory",
            )
    devices = ranks.world.allgather((int(on_device * c_w), Memory(device).room) if on_gpu else (0, 0))
    short = [rank for rank, (need, room) in enumerate(devices) if need > room]
    if short:
        found = True
        need, room = devices[short[0]]
        yield problem(
            f"{ranks.named(short)}: weights, gradients and history take {bytes_text(need)}, of {bytes_text(room)} that "
            "are free on the device", "use a device with more memory, or a smaller net",
        )  # fmt: skip
    if not found:
        sizes = [server_copies(work, len(roles.workers), gradients), sum(worker_copies(work, gradients))]
        each = "" if roles.ranks == 1 else f", and {PASSING} more on the first of its ranks when weights are sent"
        yield ok(
            f"the weights take {bytes_text(c_w)}; rank 0 holds up to {sizes[0]} copies of them as the server, a worker "
            f"{sizes[1]}{each}; blobs need further memory"
        )


def _of_rank(roles: Roles, on_device: float, in_main: float) -> tuple[float, float]:
    """Return this rank's part of a worker's copies of the weights.

    The stages count as equal parts. The savings of shards are ignored.
    """
    if roles.worker is None:
        return 0, 0
    passing = PASSING if roles.leads and roles.ranks > 1 else 0
    return on_device / roles.stages, in_main / roles.stages + passing


def check_disk(ranks: Ranks, roles: Roles, work: OuterWork) -> Iterator[Finding]:
    """Yield whether the workers have disk space for the records that rank 0 sends them; a collective call."""
    mine = attempt(_place)
    messages = ranks.world.allgather("" if roles.serves else mine.message)
    yield from errors_of(ranks, messages, "set TMPDIR to a folder that can be written (mpirun -x TMPDIR=… …)")
    if any(messages):
        return
    readers = ((worker, rank) for worker in range(len(roles.workers)) for rank in roles.readers_of(worker))
    shares = {rank: _part(work, worker) for worker, rank in readers if rank}
    places = ranks.world.allgather(mine.value)
    needs: dict[tuple[str, int], list[int]] = {}  # host and file system → ranks
    for rank in shares:
        needs.setdefault((ranks.hosts[rank], places[rank][1]), []).append(rank)
    found = False
    for members in needs.values():
        need, (folder, _, free) = sum(shares[rank] for rank in members), places[members[0]]
        if need > free:
            found = True
            yield problem(
                f"{ranks.named(members)}: the records that rank 0 sends take about {bytes_text(need)}, but there is "
                f"room for {bytes_text(free)} in {folder}",
                "set TMPDIR to a folder with room (mpirun -x TMPDIR=… …), or let all ranks reach the data and set "
                "ship_data: false",
            )
    if not found:
        yield ok(f"rank 0 sends the workers {bytes_text(work.records)} of records, for which they have room")


def _part(work: OuterWork, worker: int) -> int:
    """Return the bytes of records that a worker finally gets, if the first estimate of its speed is right."""
    return work.records * work.first[worker] // max(sum(work.first), 1)


def _place() -> tuple[str, int, int]:
    """Return the folder for temporary files, its file system, and the bytes that are free there."""
    folder = tempfile.gettempdir()
    return folder, os.stat(folder).st_dev, shutil.disk_usage(folder).free


def sends_gradients(plan: RunPlan) -> bool:
    """Return whether workers submit gradients, not weights."""
    return plan.parallel_param.exchange == pb.ParallelParameter.ASGD
