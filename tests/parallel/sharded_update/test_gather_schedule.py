"""When a divided update waits for the weights of a segment."""

from __future__ import annotations

import pytest

from bpt.engine.scheduler import Scheduler, Synchronous
from bpt.parallel.sharded_update.gather_schedule import GatherAhead


@pytest.mark.parametrize(
    ("within", "segments", "expected"),
    [
        (Synchronous(3), (0, 1, 2), "G0 F0 G1 F1 G2 F2 B2 X2 B1 X1 B0 X0 W U"),
        (Synchronous(2, passes=2), (1,), "F0 G1 F1 B1 B0 F0 F1 B1 X1 B0 X0 W U"),
        (Synchronous(2, joined=True), (0, 1), "G0 F0 G1 P1 X1 B0 X0 W U"),
        (Synchronous(1), (0, 1), "G1 G0 F0 B0 X0 W U"),  # a segment that runs in another way has its weights first
    ],
)
def test_each_segment_waits_before_it_first_runs(within: Scheduler, segments: tuple[int, ...], expected: str) -> None:
    scheduler = GatherAhead(within, segments)
    assert " ".join(map(str, scheduler.training(0, 0))) == expected
    assert scheduler.applied(4, 0) == within.applied(4, 0)
    assert scheduler.micro_batches == within.micro_batches
    forward = expected.split(" B", maxsplit=1)[0].split(" P", maxsplit=1)[0]
    assert " ".join(map(str, scheduler.forward())).startswith(forward)
