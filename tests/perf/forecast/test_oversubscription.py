"""Ranks that share cores, and the mean of a maximum, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bpt.engine.instructions import Forward
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.pipeline.simulation.trace import COMPUTE, EXCHANGE, StageEvent
from bpt.perf.forecast.arrangement import arrange
from bpt.perf.forecast.expected_max import expected_max
from bpt.perf.forecast.forecast import forecast
from bpt.perf.forecast.oversubscription import oversubscription
from tests.support.small_forecasts import nodes, small

STAGES = "parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: {} schedule: GPIPE }} }}"


@dataclass
class Played:
    """What of a played stage counts here."""

    events: list[StageEvent]


def played(*spans: tuple[float, float]) -> Any:
    idle = StageEvent(0, EXCHANGE, Forward(0), 0.0, 9.0)
    return Played([idle, *(StageEvent(0, COMPUTE, Forward(0), start, end) for start, end in spans)])


def test_two_on_one_core(tmp_path: Path) -> None:
    """Alone for 2 s, both for 2 s, alone for 2 s: of 8 s of work 4 take twice as long."""
    arrangement = arrange(*small(tmp_path, STAGES.format(4)), nodes(1, ranks=2, cores=1))
    found = oversubscription(arrangement, [played((0.0, 1.0), (1.0, 4.0)), played((2.0, 6.0))])
    assert found.tolist() == pytest.approx([1.5, 1.5])
    assert oversubscription(arrangement, [played((0.0, 0.0)), played((1.0, 1.0))]).tolist() == [1.0, 1.0]


def test_nodes_count_for_themselves(tmp_path: Path) -> None:
    cluster = Cluster((Node("a", 1.0, ranks=1, cores=1), Node("b", 1.0, ranks=3, cores=2)))
    arrangement = arrange(*small(tmp_path, STAGES.format(4)), cluster)
    # Ranks 0 and 2 are first stages, 1 and 3 second ones; a has rank 0 alone. On b three compute for 1 of 4 s.
    both = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    first = Played([StageEvent(0, COMPUTE, Forward(0), *both)])  # type: ignore[arg-type]
    second = Played([StageEvent(1, COMPUTE, Forward(1), *(moment * 4 for moment in both))])  # type: ignore[arg-type]
    found = oversubscription(arrangement, [first, second])  # type: ignore[list-item]
    assert found.tolist() == pytest.approx([1.0, *[(3 * 1.5 + 2 * 3) / (3 + 2 * 3)] * 3])


def test_who_waits_leaves_the_core_to_others(tmp_path: Path) -> None:
    """One micro-batch: one stage computes at a time, as fast as if each had a core; without stages both always do."""
    for text, speed in ((STAGES.format(1), 2.0), ("", 1.0)):
        plan, costs = small(tmp_path, text)
        crowded = forecast(plan, costs, nodes(1.0, ranks=2, cores=1))
        assert crowded.seconds == pytest.approx(forecast(plan, costs, nodes(speed, ranks=2, cores=4)).seconds)


@pytest.mark.parametrize(
    ("moments", "noise", "expected"),
    [
        ([3.0, 2.0], [0.0, 0.0], 3.0),
        ([3.0], [0.1], 3.0),
        ([2.0, 2.0], [0.1, 0.1], 2.0 + 0.2 / math.sqrt(math.pi)),
        ([2.0, 2.0, 2.0], [0.1] * 3, 2.0 + 0.2 * 1.5 / math.sqrt(math.pi)),
        ([2.0], [0.1] * 2, 2.0 + 0.2 / math.sqrt(math.pi)),  # one moment of two ranks
        ([2.0, 2.0], [0.1, 0.0], 2.0 + 0.2 / math.sqrt(2 * math.pi)),  # one that varies not
        # Clark 1961: 1 Φ(α) + 0.9 Φ(-α) + a φ(α), a = sqrt(0.1² + 0.2²), α = 0.1 / a
        ([1.0, 0.9], [0.1, 0.2 / 0.9], 1.047981),
        ([9.0, 1.0], [0.01, 0.1], 9.0),  # too early ever to be the last
        ([0.0, 0.0], [0.1, 0.1], 0.0),
    ],
)
def test_the_latest(moments: Sequence[float], noise: Sequence[float], expected: float) -> None:
    assert expected_max(np.array(moments), np.array(noise)) == pytest.approx(expected, rel=2e-4)
