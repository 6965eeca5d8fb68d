"""The memory of each rank at the peak of an iteration.

Values and history are allocated all the time. Backward allocates gradients and frees the blobs that it no longer
needs; if gradients accumulate over micro-batches or passes, all of them are allocated from the first one on. Diffs add
to that: they do not fit into the memory of the freed blobs, so the heap grows by them. If several micro-batches are
under way, one of them is freed while others stay, and leaves holes that the next one does not fill. Blobs that cross
between stages also add to it: one arrives while a stage still computes with the previous one, and one leaves while
computing continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import UPDATE_RULES
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_spec import count
from bpt.parallel.pipeline.simulation import PlayedStage
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.rank_links import Floats

LIBRARIES = 22 * 2**20  # bytes that a process's libraries allocate at the start of training, for any net
HOLES = 0.4  # fraction of a micro-batch's blobs that is lost in holes; measured from 0.2 to 0.5
LAID_OUT = 2  # copies that torch makes in CHANNELS_LAST: one of the filters, one of their gradients


class _Layer(NamedTuple):
    """Bytes of a layer on its rank: blobs and diffs of a sample, gradients, and filters that torch copies."""

    segment: int
    blobs: float
    diffs: float
    gradients: float
    filters: float
    largest: float


def peak_memory(arrangement: Arrangement, played: Sequence[PlayedStage]) -> Floats:
    """Return (ranks,) the bytes of each rank at the peak."""
    a, found = arrangement, np.zeros(arrangement.size)
    for stage, each in enumerate(played):
        layers, data_ranks = list(_layers(a, stage)), a.data_ranks[stage]
        samples = a.shares / a.micro_batches
        gradients = sum(layer.gradients for layer in layers)
        adds_up = a.micro_batches * a.passes > 1
        blobs = np.zeros(samples.shape)
        for layer in layers:
            # Without stages, a pass ends before the next one begins.
            alive = each.peaks.get(layer.segment, 1) if a.staging and not a.holds_one else 1
            blobs += alive * layer.blobs * samples
        # The peak is at the end of forward or at a layer of backward, when later layers have gradients and no blobs.
        most, come, gone = np.full(samples.shape, gradients if adds_up else 0.0), 0.0, np.zeros(samples.shape)
        for layer in reversed(layers):
            come += layer.gradients
            most = np.maximum(most, (gradients if adds_up else come) - gone)
            gone += layer.blobs * samples
        most = np.maximum(most, come - blobs)  # the update
        diffs = max((layer.diffs for layer in layers), default=0.0) * samples
        found[a.ranks[stage].ravel()] = a.stage_parameter_bytes[stage] + LIBRARIES
        if a.plan.parallel_param.divides_update:
            moments = UPDATE_RULES[a.plan.optim.type].moments * gradients
            found[a.ranks[stage].ravel()] -= moments * (1 - 1 / len(data_ranks))
        if a.micro_batches > 1:
            diffs = diffs + HOLES * sum(layer.blobs for layer in layers) * samples
        crossing = _crossing(a, stage, each.peaks) * samples
        found[data_ranks] += blobs + most - gradients + diffs + crossing + _copies(a, stage, layers, adds_up)
    return found


def _layers(a: Arrangement, stage: int) -> Iterator[_Layer]:
    split = a.split if a.is_peer else frozenset()
    segments = [segment.index for segment in a.segments for _ in range(segment.start, segment.end)]
    for index, (cost, of) in enumerate(zip(a.costs.layers, a.stage_of_layer, strict=True)):
        if of == stage:
            cut = a.slices if index in split else 1
            yield _Layer(
                segments[index], cost.activations / a.costs.batch, cost.diffs / a.costs.batch, cost.trained / cut,
                _filters(a, index), cost.largest / cut,
            )  # fmt: skip


def _crossing(a: Arrangement, stage: int, peaks: Mapping[int, int]) -> float:
    """Return the bytes of a sample's blobs and diffs that cross to and from a stage.

    These are the values that have arrived and are still needed, and the next ones; the diff that arrives, and the next
    one; and the copies of what the stage sends.
    """
    found, itemsizes = 0.0, blob_itemsizes(a.graph, a.plan.precision)
    several = a.micro_batches * a.passes > 1
    for blob in a.transfers:
        alive = peaks.get(blob.target, 1)
        here = {
            blob.to_stage: alive + (several and alive < a.micro_batches) + blob.diff,
            blob.from_stage: 1 + (1 + several) * blob.diff,
        }
        found += here.get(stage, 0) * count(blob.shape) * itemsizes[blob.edges[0]] / a.costs.batch
    return found


def _filters(a: Arrangement, index: int) -> float:
    """Return the bytes of a convolution's filters if they are larger than 1 × 1, since torch copies only these."""
    if a.plan.engine == pb.SolverParameter.CONTIGUOUS:
        return 0.0
    shapes = [a.graph.params[param].shape for param in a.graph.nodes[index].params]
    found = sum(float(np.prod(shape)) for shape in shapes if len(shape) > 3 and max(shape[2:]) > 1)
    return found * a.plan.precision.master.itemsize


def _copies(a: Arrangement, stage: int, layers: Sequence[_Layer], adds_up: bool) -> float:
    """Return bytes of copies besides values and gradients.

    These are torch's copies of filters, the gradient that is being added, packed gradients or CGDP's shared memory
    areas, the buffer of the library's all-reduce (two of P pieces of a message), and the residual of a codec.
    """
    found = LAID_OUT * sum(layer.filters for layer in layers)
    if adds_up:
        found += max((layer.largest for layer in layers), default=0.0)
    data_ranks = a.data_ranks[stage]
    if len(data_ranks) > 1:
        own = [each for segment, each in a.gradients.items() if a.stage_of[segment] == stage]
        on_one = max(Counter(a.cluster.hosts[rank] for rank in data_ranks).values())
        if a.plan.parallel_param.exchange != pb.ParallelParameter.CGDP:
            packed = sum(each.packed for each in own)
            found += packed
            if a.plan.parallel_param.exchange == pb.ParallelParameter.ALLREDUCE:
                longest = max([packed, *(layer.largest for layer in layers)])
                found += min(1.0, 2 / len(data_ranks)) * longest
        else:  # an area and, on a host with several ranks, the sum, of which each rank adds a part over all areas
            found += (1.0 if on_one == 1 else 3.0 - 1 / on_one) * sum(each.whole for each in own)
        if a.plan.parallel_param.compression_param.name and (a.codes_on_hosts or on_one < len(data_ranks)):
            found += sum(each.whole for each in own)
    return found
