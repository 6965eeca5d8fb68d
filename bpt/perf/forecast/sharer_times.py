"""What segments and messages take on the ranks of a plan, for all sharers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_spec import count
from bpt.perf.forecast.arrangement import MOVED, Arrangement, Floats
from bpt.perf.forecast.rank_links import RankLinks

T = TypeVar("T")


class SharerTimes:
    """As ``schedule.pipeline.simulation.Times``, with a place for each sharer; each is worked out once.

    Args:
        faster: (ranks,) how many times as fast each computes as while all ranks of its node do.

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
        # (stages, sharers): seconds of the whole net for a micro-batch, and for all of them in one; and, of both, those
        # that its parameters take.
        once, each = ((values / faster)[a.sharers] for values in a.pace)
        self._moving = np.where(micro > 0, (a.moving / faster)[a.sharers], 0.0)
        self._micro = np.where(micro > 0, once - self._moving + micro * each, 0.0)
        self._whole = np.where(micro > 0, once - self._moving + self._share * each, 0.0)
        self.itemsizes = blob_itemsizes(a.graph, a.plan.precision)
        gathers = a.staging.gathers if a.staging else frozenset()
        self.gathers = frozenset(segment.index for segment in a.segments if segment.start in gathers)

    def forward(self, stage: int, segment: int) -> Floats:
        """See Times."""
        return self._once(("F", segment), lambda: self._pass(stage, segment, forward=True))

    def backward(self, stage: int, segment: int) -> Floats:
        """See Times."""
        return self._once(
            ("B", segment), lambda: self._pass(stage, segment, forward=False) + self._border(stage, segment)
        )

    def transfer(self, flow: int, diff: bool) -> Floats:
        """See Times."""
        return self._once((flow, diff), lambda: self._message(flow, diff))[0]

    def latency(self, flow: int, diff: bool) -> Floats:
        """See Times."""
        return self._once((flow, diff), lambda: self._message(flow, diff))[1]

    def exchange(self, stage: int, segment: int) -> float:
        """See Times; here replicas meet, which no clock of a pipeline knows."""
        return 0.0

    def update(self, stage: int) -> Floats:
        """See Times."""
        a = self._a
        found: Floats = a.update[a.sharers[stage]] * (a.held[stage] / (a.parameters or 1.0))
        return found

    def _once(self, key: tuple[object, ...], made: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = made()
        found: T = self._known[key]
        return found

    def _message(self, flow: int, diff: bool) -> tuple[Floats, Floats]:
        a, what = self._a, self._a.flows[flow]
        each = count(what.shape) * self.itemsizes[what.edges[0]] / a.costs.batch / a.micro_batches
        ends = a.sharers[what.from_stage], a.sharers[what.to_stage]
        return self._links.crossing(*(ends[::-1] if diff else ends), each * self._share)

    def _pass(self, stage: int, segment: int, forward: bool) -> Floats:
        a, span = self._a, self._a.segments[segment]
        work = float(a.work[not forward][span.start : span.end].sum())
        moved = (1 if forward else MOVED - 1) / MOVED * float(a.weights[span.start : span.end].sum())
        computing: Floats = work * (self._whole if segment in self.gathers else self._micro)[stage]
        moving: Floats = moved * self._moving[stage]
        if a.blocks.get(segment) is None:
            return computing + moving
        return self._split(stage, computing, moving) + self._traded(stage, segment)

    def _border(self, stage: int, segment: int) -> Floats | float:
        """Return what it takes that the segment behind this one, if it is of the same stage, is another."""
        a, behind = self._a, segment + 1
        if behind == len(a.segments) or a.stage_of[behind] != stage:
            return 0.0
        samples = self._share if segment in self.gathers else self._share / a.micro_batches
        each, once = (values[a.sharers[stage]] for values in a.borders)
        found: Floats = np.where(samples > 0, once + each * samples, 0.0)
        return found

    def _split(self, stage: int, computing: Floats, moving: Floats) -> Floats:
        """Split layers: among peers each does a slice for all of its group's samples, as much as if it did its own
        whole, but by a slice of the parameters; slaves do both in the master's place.
        """
        a = self._a
        if a.is_peer:
            return computing + moving / a.shards
        slaves = a.speeds[a.ranks[stage, 1:]].min(axis=0)
        found: Floats = (computing + moving) * a.speeds[a.sharers[stage]] / slaves / (a.shards - 1)
        return found

    def _traded(self, stage: int, segment: int) -> Floats:
        """Return what shards send each other of a block's bottom and top, one way."""
        a, block = self._a, self._a.blocks[segment]
        bottom = count(a.graph.edges[block.bottom].shape[1:]) * (not block.takes_slices)
        top = block.features * (not block.keeps_slices)
        itemsize = self.itemsizes[block.bottom]
        group = self._links.group(a.ranks[stage, :, 0])
        samples = self._share / a.micro_batches
        if a.is_peer:
            each = samples * (bottom + top) * itemsize * (a.shards - 1)
        else:
            each = samples * (bottom * (a.shards - 1) + top) * itemsize
        latency, bandwidth = max(group.across[0], group.within[0]), min(group.across[1], group.within[1])
        found: Floats = 2 * (latency + a.cluster.waking) + each / bandwidth  # who computes waits for each of the two
        return found
