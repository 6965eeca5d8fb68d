"""How long forward passes wait for weights that other ranks have updated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bpt.engine.instructions import Forward
from bpt.parallel.pipeline.simulation.trace import COMPUTE, StageEvent
from bpt.perf.forecast.gather_overlap import GatherOverlap

# Three segments that run forward from 0, 1 and 3 seconds on.
PLAYED = SimpleNamespace(events=[StageEvent(0, COMPUTE, Forward(s), at, at) for s, at in ((0, 0), (1, 1), (2, 3))])


@pytest.mark.parametrize(
    ("seconds", "overlaps", "efficiency", "delay", "ends"),
    [
        ((1, 1, 1), True, 1.0, 1.0, (1, 2, 3)),  # only the first is waited for
        ((1, 3, 0), True, 1.0, 3.0, (1, 4)),  # the second is there at 4 and not at 1; the third has nothing
        ((1, 1, 1), True, 0.5, 2.0, (1, 3, 5)),  # messages are half as fast while ranks compute
        ((1, 1, 1), False, 0.5, 3.0, (1, 2, 3)),
    ],
)
def test_what_forward_hides(
    seconds: tuple[float, ...], overlaps: bool, efficiency: float, delay: float, ends: tuple[float, ...]
) -> None:
    costs = SimpleNamespace(divides=True, seconds=lambda segment: seconds[segment], overlaps=lambda segment: overlaps)
    found = GatherOverlap.of(cast(Any, costs), [cast(Any, PLAYED)], efficiency)
    assert found.delay == delay
    assert [end for _, _, end in found.intervals[0]] == list(ends)
    costs.divides = False
    assert GatherOverlap.of(cast(Any, costs), [cast(Any, PLAYED)], efficiency) == GatherOverlap(0.0, ((),))
