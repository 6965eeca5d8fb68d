"""The seconds of segments and messages on the ranks of a plan, for all data-parallel ranks at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_spec import count
from bpt.parallel.discrete_event import Resource
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.rank_links import Floats, RankLinks
from bpt.perf.forecast.rank_speeds import MOVED

T = TypeVar("T")


class DataRankTimes:
    """PipelineTimes as arrays with an element for each data-parallel rank; each array is computed once.

    Args:
        faster: (ranks,) speed-up of each rank over its speed while all ranks of its node compute.

    Attributes:
        itemsizes: bytes of an element of each edge's blob.
        gathers: the segments that run once for all micro-batches.
    """

    def __init__(self, arrangement: Arrangement, links: RankLinks, faster: Floats) -> None:
        self._a = a = arrangement
        self._links = links
        self._known: dict[tuple[object, ...], Any] = {}
        self._share = a.shares.astype(np.float64)
        micro = self._share / a.micro_batches
        # (stages, shares): seconds of the whole net for a micro-batch, and for all micro-batches in one pass; and the
        # part of both that reads parameters and writes their gradients.
        once, each = ((values / faster)[a.data_ranks] for values in a.speeds.pass_seconds)
        self._moving = np.where(micro > 0, (a.speeds.parameter_seconds / faster)[a.data_ranks], 0.0)
        self._fixed = np.where(micro > 0, once - self._moving, 0.0)
        self._micro = np.where(micro > 0, self._fixed + micro * each, 0.0)
        self._whole = np.where(micro > 0, self._fixed + self._share * each, 0.0)
        self._in_two = a.staging is not None and a.staging.rule == pb.PipelineParameter.ZERO_BUBBLE
        self.itemsizes = blob_itemsizes(a.graph, a.plan.precision)
        gathers = a.staging.gathers if a.staging else frozenset()
        self.gathers = frozenset(segment.index for segment in a.segments if segment.start in gathers)

    def forward(self, stage: int, segment: int) -> Floats:
        return self._once(("F", segment), lambda: self._pass(stage, segment, forward=True))

    def backward(self, stage: int, segment: int) -> Floats:
        return self._once(("B", segment), lambda: self._backward(stage, segment))

    def weights(self, stage: int, segment: int) -> Floats:
        return self._once(("V", segment), lambda: self._weights(stage, segment))

    def transfer(self, flow: int, diff: bool) -> Floats:
        return self._once((flow, diff), lambda: self._message(flow, diff))[0]

    def latency(self, flow: int, diff: bool) -> Floats:
        return self._once((flow, diff), lambda: self._message(flow, diff))[1]

    def exchange(self, stage: int, segment: int) -> float:
        """Return 0: ExchangeOverlap adds the exchange, in which the pipelines of all replicas meet."""
        return 0.0

    def update(self, stage: int) -> Floats:
        a = self._a
        part = a.stage_parameter_bytes[stage] / (a.parameter_bytes or 1.0)
        found: Floats = a.speeds.update[a.data_ranks[stage]] * part
        return found

    def _once(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    def _message(self, flow: int, diff: bool) -> tuple[Floats, Floats]:
        a, blob = self._a, self._a.transfers[flow]
        each = count(blob.shape) * self.itemsizes[blob.edges[0]] / a.costs.batch / a.micro_batches
        ends = a.data_ranks[blob.from_stage], a.data_ranks[blob.to_stage]
        return self._links.crossing(*(ends[::-1] if diff else ends), each * self._share)

    def _pass(self, stage: int, segment: int, forward: bool) -> Floats:
        a, span = self._a, self._a.segments[segment]
        work = float(a.speeds.layer_work[not forward][span.start : span.end].sum())
        moved = (1 if forward else MOVED - 1) / MOVED * float(a.speeds.layer_parameters[span.start : span.end].sum())
        computing: Floats = work * (self._whole if segment in self.gathers else self._micro)[stage]
        moving: Floats = moved * self._moving[stage]
        if a.blocks.get(segment) is None:
            return computing + moving
        return self._in_pieces(stage, segment, self._split(stage, computing, moving), forward)

    def _backward(self, stage: int, segment: int) -> Floats:
        found: Floats = self._pass(stage, segment, forward=False) + self._border(stage, segment)
        if self._in_two:
            found = found + self._fixed_for_weights(stage, segment)
        return found + self.forward(stage, segment) if segment in self._a.recomputed else found

    def _weights(self, stage: int, segment: int) -> Floats:
        """Return the seconds of the second part of a backward pass in two: the gradients of weights.

        Each part takes the whole time of a pass that does not depend on samples.
        """
        span = self._a.segments[segment]
        layers = self._a.costs.layers[span.start : span.end]
        part = sum(cost.weights for cost in layers) / (sum(cost.backward for cost in layers) or 1.0)
        fixed = self._fixed_for_weights(stage, segment)
        found: Floats = part * (self._pass(stage, segment, forward=False) - fixed) + fixed
        return found

    def _fixed_for_weights(self, stage: int, segment: int) -> Floats:
        """Return the seconds of a backward pass, whatever its samples, of those layers of a segment that have weights.

        What moves parameters is not included.
        """
        a, span = self._a, self._a.segments[segment]
        work = a.speeds.layer_work[1][span.start : span.end]
        weighty = [cost.weights > 0 for cost in a.costs.layers[span.start : span.end]]
        found: Floats = float(work[weighty].sum()) * self._fixed[stage]
        return found

    def _border(self, stage: int, segment: int) -> Floats | float:
        """Return the seconds of the border to the next segment if that is on the same stage, else 0."""
        a, behind = self._a, segment + 1
        if behind == len(a.segments) or a.stage_of[behind] != stage:
            return 0.0
        samples = self._share if segment in self.gathers else self._share / a.micro_batches
        each, once = (values[a.data_ranks[stage]] for values in a.speeds.borders)
        found: Floats = np.where(samples > 0, once + each * samples, 0.0)
        return found

    def _split(self, stage: int, computing: Floats, moving: Floats) -> Floats:
        """Return the seconds of split layers.

        A peer computes a slice for all samples of its group, as much work as its own samples with whole layers, but
        reads a slice of the parameters. Slaves do both in place of the master.
        """
        a = self._a
        if a.is_peer:
            return computing + moving / a.shards
        speeds = a.speeds.speeds
        slaves = speeds[a.ranks[stage, 1:]].min(axis=0)
        found: Floats = (computing + moving) * speeds[a.data_ranks[stage]] / slaves / (a.shards - 1)
        return found

    def _in_pieces(self, stage: int, segment: int, computing: Floats, forward: bool) -> Floats:
        """Return the seconds of a block with the exchange of its blobs, which overlaps if there are several pieces.

        What arrives is the bottom or, backward, the diff of the top. With several pieces, the gradients of the weights,
        half of a backward pass, are computed when all pieces have left.
        """
        pieces = min(self._a.plan.parallel_param.fc_param.pieces, max(1, int(self._share.max())))
        later = computing * (0.0 if forward or pieces == 1 else 0.5)
        link, own = Resource(np.maximum), Resource(np.maximum)
        slow = self._a.cluster.busy_efficiency
        arrive, leave = self._traded(stage, segment, pieces)[:: 1 if forward else -1]
        link.serve(0.0, arrive)
        ahead = link.free
        for piece in range(pieces):
            arrived = ahead
            if piece + 1 < pieces:
                link.serve(own.free, arrive / slow)
                ahead = link.free
            own.serve(arrived, (computing - later) / pieces)
            is_exposed = piece + 1 == pieces and forward
            link.serve(own.free, leave / (1.0 if is_exposed or pieces == 1 else slow))
        found: Floats = np.maximum(link.free, own.free + later)
        return found

    def _traded(self, stage: int, segment: int, pieces: int) -> tuple[Floats, Floats]:
        """Return the seconds in which shards exchange a piece of a block's bottom, and of its top."""
        a, block = self._a, self._a.blocks[segment]
        others = a.shards - 1
        bottom = count(a.graph.edges[block.bottom].shape[1:]) * others
        top = block.features * (others / a.shards if a.is_peer else 1)
        group = self._links.group(a.ranks[stage, :, 0])
        latency, bandwidth = max(group.across[0], group.within[0]), min(group.across[1], group.within[1])
        each = self._share / a.micro_batches / pieces * self.itemsizes[block.bottom] / bandwidth
        once = latency + a.cluster.waking
        return once + bottom * each, (once + top * each) * (not block.keeps_slices)
