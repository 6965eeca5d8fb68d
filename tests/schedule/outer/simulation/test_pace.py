"""Work on a node whose speed changes."""

from __future__ import annotations

import random

import pytest

from bpt.schedule.outer.simulation.pace import Pace

# 1 until 10, then a half until 20, then twice.
CHANGES = ((10.0, 0.5), (20.0, 2.0))


@pytest.mark.parametrize(
    ("start", "work", "end"),
    [
        (0, 10, 10),  # all before the change
        (8, 4, 14),  # 2 at full speed, 2 at half
        (12, 2, 16),
        (8, 9, 21),  # 2, then 5 in ten seconds, then 2 at twice the speed
        (20, 4, 22),
        (30, 4, 32),
        (10, 0, 10),
        (5, 0, 5),
    ],
)
def test_work_across_changes(start: float, work: float, end: float) -> None:
    pace = Pace(CHANGES)
    assert pace.end(start, work) == pytest.approx(end)
    assert pace.done(start, end) == pytest.approx(work)


def test_without_changes_work_is_time() -> None:
    assert Pace().end(3, 4) == 7
    assert Pace().done(3, 5) == 2


def test_a_change_at_the_start_holds_from_the_start() -> None:
    assert Pace([(0.0, 0.5)]).end(0, 1) == 2


def test_of_two_changes_at_one_time_the_last_counts() -> None:
    assert Pace([(1.0, 0.25), (1.0, 0.5)]).end(0, 2) == 3


def test_against_small_steps() -> None:
    """The work of a millisecond each, added up."""
    generator = random.Random(1)
    for _ in range(20):
        changes = sorted((generator.randint(0, 5000) / 1000, generator.uniform(0.2, 3)) for _ in range(3))
        start = generator.randint(0, 3000)
        end = start + generator.randint(0, 4000)
        work = 0.0
        for step in range(start, end):
            work += [1.0, *(factor for at, factor in changes if at <= step / 1000)][-1] / 1000
        pace = Pace(changes)
        assert pace.done(start / 1000, end / 1000) == pytest.approx(work)
        assert pace.end(start / 1000, work) == pytest.approx(end / 1000)
