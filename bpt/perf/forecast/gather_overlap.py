"""The gather of updated weights on the virtual clock: what of it the next forward pass hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bpt.engine.instructions import Forward
from bpt.parallel.pipeline.simulation import PlayedStage
from bpt.perf.forecast.exchange_costs import ExchangeCosts


@dataclass(frozen=True)
class GatherOverlap:
    """The gathers of an iteration's beginning; moments are in seconds from the end of the update.

    Attributes:
        delay: seconds for which forward passes wait for weights.
        intervals: for each stage its segments, with the start and the end of their gathers.
    """

    delay: float
    intervals: tuple[tuple[tuple[int, float, float], ...], ...]

    @classmethod
    def of(cls, costs: ExchangeCosts, stages: Sequence[PlayedStage], busy_efficiency: float) -> GatherOverlap:
        """Return the gathers ahead of the forward passes in ``stages``; without a divided update there are none.

        Weights travel in the order in which segments first run. A segment that waits delays all later ones.

        Args:
            busy_efficiency: the speed of messages while ranks compute, as a part of that while they wait.
        """
        delay, intervals = 0.0, []
        for played in stages:
            begin: dict[int, float] = {}
            for event in played.events if costs.divides else ():
                if isinstance(event.instruction, Forward):
                    begin.setdefault(event.instruction.segment, float(np.min(event.start)))
            own: list[tuple[int, float, float]] = []
            at = late = 0.0
            for segment, start in sorted(begin.items(), key=lambda each: each[1]):
                seconds = costs.seconds(segment)
                if seconds:
                    overlapped = costs.overlaps(segment) and bool(own)
                    end = at + seconds / (busy_efficiency if overlapped else 1.0)
                    own.append((segment, at, end))
                    at = end
                    late = max(late, end - start) if costs.overlaps(segment) else end
            delay = max(delay, late)
            intervals.append(tuple(own))
        return cls(delay, tuple(intervals))
